"""Offsets so that buffers alive together do not overlap, as low as can be."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..errors import InvalidValueError, PlanError
from . import _core
from .buffers import Buffer, Buffers, Column
from .check import check_layout, find_overlap

__all__ = ["METHODS", "Layout", "layout"]

METHODS = ("auto", "greedy", "genetic", "exact")


@dataclass(frozen=True)
class Layout:
    """A layout that has been checked.

    Attributes
    ----------
    offsets : int64 array
        Bytes, one for each buffer in the order given.
    height : int
        Bytes from 0 to the end of the highest buffer.
    lower_bound : int
        The most bytes alive at once.
    optimal : bool
        It is proven that no layout is lower.
    fits : bool or None
        Whether the height is within the capacity; None without one.
    infeasible : bool
        It is proven that no layout is within the capacity.
    seconds : float
        What it took.
    method : str
        What found it.
    capacity : int or None
    seed : int
    """

    offsets: Column = field(repr=False)
    height: int
    lower_bound: int
    optimal: bool
    fits: bool | None
    infeasible: bool
    seconds: float
    method: str
    capacity: int | None
    seed: int


def layout(
    buffers: Buffers | Iterable[Buffer | tuple[int, int, int]],
    capacity: int | None = None,
    time_limit: float = 10.0,
    seed: int = 0,
    *,
    method: str = "auto",
) -> Layout:
    """Lay buffers out.

    Parameters
    ----------
    buffers : Buffers, or an iterable of Buffer or (lower, upper, size)
    capacity : int, optional
        Bytes to fit into; work ends as soon as that is done. Without it the layout gets as low as it can.
    time_limit : float
        Seconds.
    seed : int
        Same problem, same seed: same layout, unless the time limit cut one of them short.
    method : str
        ``"greedy"``; ``"genetic"`` or ``"exact"``, the tree search, which can prove what it finds the lowest,
        each from the greedy layout on; ``"auto"``: greedy, then both where that is not known to be the lowest
        and the problem is not too large, ending less than the alignment above what is proven.

    Returns
    -------
    Layout

    Raises
    ------
    PlanError
        For a malformed problem, or one whose fixed offsets collide.
    """
    start = time.perf_counter()
    if method not in METHODS:
        raise InvalidValueError(f"method {method!r} is not one of {', '.join(METHODS)}")
    if not time_limit >= 0:
        raise InvalidValueError(f"a time limit of {time_limit} seconds")
    if capacity is not None and capacity < 0:
        raise InvalidValueError(f"a capacity of {capacity} bytes")
    problem = Buffers.of(buffers)
    offsets = np.maximum(problem.fixed, 0)
    chosen = np.flatnonzero(problem.occupying)
    _refuse_fixed_overlap(problem)
    height, bound, how = 0, 0, "nothing to place"
    if len(chosen):
        columns = (problem.lower, problem.upper, problem.size, problem.alignment, problem.fixed)
        core = _core.Problem(*(column[chosen] for column in columns))
        deadline = start + time_limit - _CHECK_SECONDS * len(chosen)
        limit = -1 if capacity is None else capacity
        searchable = _core.searchable(core)
        if method in ("exact", "genetic") and not searchable:
            raise PlanError(
                f"{len(problem)} buffers, with {core.pairs} pairs of them alive together, are too many for "
                f"method {method}"
            )
        found, height, how = _core.greedy(core, limit, deadline - time.perf_counter())
        bound = core.bound
        left = deadline - time.perf_counter()
        if method != "greedy" and searchable and left > 0 and height > max(bound, limit):
            if method == "genetic":
                found, height, better, bound = _core.genetic(core, found, limit, seed, left)
            else:
                exact = method == "exact"
                found, height, better, bound = _core.search(core, found, limit, exact, not exact, seed, left)
            how = better or how
        offsets[chosen] = found
    fits = None if capacity is None else height <= capacity
    check_layout(problem, offsets, capacity if fits else None)
    return Layout(
        offsets=offsets,
        height=height,
        lower_bound=problem.max_load(),
        optimal=height <= bound,
        fits=fits,
        infeasible=capacity is not None and bound > capacity,
        seconds=time.perf_counter() - start,
        method=how,
        capacity=capacity,
        seed=seed,
    )


# The check of a layout, a buffer; left out of the time for finding it.
_CHECK_SECONDS = 4e-6


def _refuse_fixed_overlap(problem: Buffers) -> None:
    fixed = np.flatnonzero(problem.fixed >= 0)
    if len(fixed) < 2:
        return
    part = Buffers(
        [problem.ids[int(i)] for i in fixed], problem.lower[fixed], problem.upper[fixed], problem.size[fixed]
    )
    pair = find_overlap(part, problem.fixed[fixed])
    if pair is not None:
        a, b = (int(fixed[i]) for i in pair)
        raise PlanError(
            f"{problem.name(b)}: its fixed offset {problem.fixed[b]} puts it on {problem.name(a)}, "
            f"fixed at {problem.fixed[a]} and alive at the same time"
        )
