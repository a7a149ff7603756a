"""Cutting a job into chunks so that moving one overlaps with computing the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..errors import InvalidValueError
from . import _core

__all__ = ["makespan", "plan_chunks"]

Cost: TypeAlias = Callable[[int], float]
State: TypeAlias = tuple[float, float, tuple[int, ...]]

_MOST_UNITS = 256


def makespan(chunks: Sequence[int], cost_a: Cost, cost_b: Cost) -> float:
    """When the last chunk is done, each going through a and then b, neither of which does two at a time."""
    a = b = 0.0
    for chunk in chunks:
        a += cost_a(chunk)
        b = max(a, b) + cost_b(chunk)
    return b


def plan_chunks(
    total: int,
    cost_a: Cost,
    cost_b: Cost,
    short: int,
    align: int = 1,
    max_chunks: int | None = None,
    *,
    conflict: float = 1.0,
    mode: str = "balance",
) -> list[int]:
    """Chunk sizes for a job that is first computed (a) and then moved (b).

    Parameters
    ----------
    total : int
        Units of work: rows, pages, bytes.
    cost_a, cost_b : callable of int, to float
        The time that so many units take to compute and to move.
    short : int
        The least chunk worth moving by itself.
    align : int
        Sizes are multiples of it; a rest of the total goes with the last chunk.
    max_chunks : int, optional
    conflict : float
        How much longer moving takes while computing shares the bandwidth.
    mode : {"balance", "exact"}
        "balance": one short chunk, first where moving takes longer in all, else last; the others such that computing
        one takes as long as moving the short one, and what is left over spread over all. "exact": the sizes of the
        least :func:`makespan`, by dynamic programming; at most 256 aligned units.

    Returns
    -------
    list of int
        In the order of their work; they add up to `total`.

    Notes
    -----
    The rule of "balance" is that of fused computation and communication in Ascend's MC2 operators.
    """
    if total < 1 or align < 1 or short < 1 or (max_chunks is not None and max_chunks < 1):
        raise InvalidValueError("total, short, align and max_chunks must be positive")
    if mode == "exact":
        return _exact(total, cost_a, cost_b, align, max_chunks, conflict)
    if mode != "balance":
        raise InvalidValueError(f"mode {mode!r} is neither 'balance' nor 'exact'")
    return _core.balanced_chunks(total, cost_a, cost_b, short, align, max_chunks or 0, conflict)


def _exact(total: int, cost_a: Cost, cost_b: Cost, align: int, max_chunks: int | None, conflict: float) -> list[int]:
    units = total // align
    if units > _MOST_UNITS:
        raise InvalidValueError(
            f"{units} aligned units are more than the {_MOST_UNITS} of mode 'exact': align more coarsely"
        )
    if units == 0:
        return [total]
    tail = total - units * align
    a = [cost_a(n * align) for n in range(units + 1)]
    b = [conflict * cost_b(n * align) for n in range(units + 1)]
    a_last = [cost_a(n * align + tail) for n in range(units + 1)]
    b_last = [conflict * cost_b(n * align + tail) for n in range(units + 1)]
    most = units if max_chunks is None else min(max_chunks, units)
    # For each number of units done, the ends of a and b that no other way to do them beats in both, and the way.
    fronts: list[list[State]] = [[] for _ in range(units + 1)]
    fronts[0].append((0.0, 0.0, ()))
    for done in range(1, units + 1):
        reached: list[State] = []
        for size in range(1, done + 1):
            last = done == units
            for end_a, end_b, way in fronts[done - size]:
                if len(way) < most:
                    next_a = end_a + (a_last if last else a)[size]
                    reached.append((next_a, max(next_a, end_b) + (b_last if last else b)[size], (*way, size)))
        fronts[done] = _undominated(reached, limited=max_chunks is not None)
    way = min(fronts[units], key=lambda state: state[1])[2]
    sizes = [size * align for size in way]
    sizes[-1] += tail
    return sizes


def _undominated(states: list[State], *, limited: bool) -> list[State]:
    kept: list[State] = []
    for state in sorted(states, key=lambda s: (s[0], s[1], len(s[2]))):
        if not any(other[1] <= state[1] and (not limited or len(other[2]) <= len(state[2])) for other in kept):
            kept.append(state)
    return kept
