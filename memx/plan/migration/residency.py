"""What to keep on a device without segments: exact where that is small, else the best of rules and searches."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import _core
from ..buffers import Column
from ..highs import run
from .bound import Gaps, Model
from .problem import Migration

Numbers = npt.NDArray[np.float64]

__all__ = ["RULES", "Residency", "plan_residency"]

RULES = ("furthest next use", "cheapest for its time", "clean first", "least recently used")
"""Rules for what gives way, in the inner loops' order."""

_ROUNDS = 20_000
# A program in numbers below this is solved exactly by double arithmetic with the tolerances set here.
_EXACT_IN_DOUBLES = 1_000_000
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Residency:
    """Decisions for the problem's entering accesses, their cost, and how they were found."""

    dropped: Column
    migrated_bytes: int
    optimal: bool
    method: str


def plan_residency(
    problem: Migration, capacity: int, lower_bound: int, kept: Numbers, gaps: Gaps, seed: int, deadline: float
) -> Residency:
    """Decisions for a device whose capacity holds every step.

    Parameters
    ----------
    problem : Migration
    capacity : int
    lower_bound : int
    kept : float64 array
        What the relaxation keeps of each of ``gaps``.
    gaps : Gaps
    seed : int
    deadline : float
        On :func:`time.perf_counter`'s clock.
    """
    core, none = problem.core, np.zeros(0)
    position = np.full(len(problem.object), -1, np.int64)
    position[problem.entering] = np.arange(len(problem.entering))
    access = position[gaps.access]

    def search(priority: Numbers, rounds: int) -> Residency:
        left = max(0.0, deadline - time.perf_counter())
        dropped, excess, moved, exact = _core.hold(core, capacity, priority, rounds, lower_bound, seed, left)
        assert excess == 0
        method = "exact" if exact else "local search"
        return Residency(dropped, moved, exact or moved <= lower_bound, method)

    best = search(none, 0)
    if best.optimal:
        return best
    priority = np.zeros(len(problem.entering))
    priority[access] = kept + 0.5 / (1 + gaps.end - gaps.begin)
    best = min(best, search(priority, _ROUNDS), key=lambda found: found.migrated_bytes)
    if best.optimal or deadline - time.perf_counter() < 0.1:
        return best
    whole = _solve_whole(problem, capacity, gaps, best.dropped[access] == 0, deadline)
    if whole is None:
        return best
    chosen, proven = whole
    priority[access] = chosen + 0.5 / (1 + gaps.end - gaps.begin)
    found = search(priority, 0)
    if found.migrated_bytes < best.migrated_bytes:
        best = Residency(found.dropped, found.migrated_bytes, found.optimal, "integer program")
    optimal = best.optimal or best.migrated_bytes <= proven
    return Residency(best.dropped, best.migrated_bytes, optimal, best.method)


def _solve_whole(
    problem: Migration, capacity: int, gaps: Gaps, start: npt.NDArray[np.bool_], deadline: float
) -> tuple[Numbers, int] | None:
    """What HiGHS keeps of each gap, and the bytes that it proves; 0 where doubles cannot."""
    import highspy

    grain = int(np.gcd.reduce(problem.size[problem.size > 0]))
    model = Model(problem, capacity, gaps)
    unit = grain if int(gaps.size.sum()) + capacity < _EXACT_IN_DOUBLES * grain else None
    highs = model.build(whole=True, unit=unit)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_feasibility_tolerance", _TOLERANCE)
    highs.setOptionValue("primal_feasibility_tolerance", _TOLERANCE)
    highs.setOptionValue("time_limit", max(0.0, deadline - time.perf_counter()))
    first = highspy.HighsSolution()
    first.col_value = model.columns_of(start, unit).tolist()
    highs.setSolution(first)
    run(highs)
    values = np.array(highs.getSolution().col_value[: len(gaps.size)])
    if not len(values):
        return None
    bound = 0
    if unit is not None:
        dual = highs.getInfo().mip_dual_bound
        bound = gaps.base + int(np.ceil(dual - 1e-4)) * grain
    return np.round(values), bound
