"""Planning which objects share which part of a device, so that the fewest bytes move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import numpy as np

from ...errors import InvalidValueError, PlanError
from ...sizes import parse_size
from ...trace import Trace
from ...trace import events as ev
from .. import _core
from ..buffers import Column
from .bound import Relaxation, gaps_of, relax
from .feasible import Infeasible, find_assignment, first_oversized_step, first_unservable_step
from .islands import Effort, Island, Pool, Task, Threads, anneal_all, evolve_all
from .problem import Migration, read_migration
from .residency import plan_residency
from .result import MODES, SegmentPlan

__all__ = ["Progress", "largest_segments", "segments"]

Progress = Callable[[str, int], None]

# Shares of the time limit, from its beginning, at which a phase ends at the latest.
_EVOLVED, _ANNEALED, _BRANCHED = 0.5, 0.88, 0.94
_MOVES_AN_OBJECT = 600
_BRANCH_NODES = 400_000
_SETTLE_ROUNDS = 300
_SEEDS = 2**64 - 1  # what the inner loops take


def segments(
    trace: Trace | str | PathLike[str] | Migration | Iterable[ev.Event],
    capacity: int | str,
    time_limit: float = 10.0,
    seed: int = 0,
    *,
    mode: str = "exclusive",
    segments: int | None = None,
    effort: Effort | None = None,
    pool: Pool | None = None,
    progress: Progress | None = None,
) -> SegmentPlan:
    """Plan which objects of a trace are on a device of some capacity when, so that the fewest bytes move.

    Bytes move from the host to the device when an operation reads an object that is not there, and back when one goes
    whose contents are needed later and are not on the host. Everything starts on the host.

    Parameters
    ----------
    trace : Trace, path, Migration, or iterable of events
    capacity : size
        Bytes of the device.
    time_limit : float
        Seconds for the search, what proves bounds aside.
    seed : int
        Same problem, same seed: same plan, unless the time limit cut one of them short.
    mode : str
        ``"exclusive"``: the device is cut into segments, each of which has one object at a time. ``"packed"``: a
        segment has several as long as they fit. ``"unsegmented"``: any that fit the device.
    segments : int, optional
        How many: of the sizes of as many of the largest objects. Otherwise as many as fit the capacity: those serve
        every assignment that fewer do.
    effort : Effort, optional
        Of the genetic algorithm.
    pool : Pool, optional
        What runs its islands; by default threads here.
    progress : callable, optional
        Told the phase and the bytes moved, now and then.

    Returns
    -------
    SegmentPlan
        Checked by :func:`check_moves`. Not feasible where some step cannot be served, or no way was found to serve
        them all.

    Raises
    ------
    InvalidValueError
        An argument out of range.
    TraceError, PlanError
        The trace is malformed.

    Notes
    -----
    The genetic algorithm is that of CN114398182B, a grouping one: the sizes of the N largest objects make the
    segments, the first generation assigns the others at random in order of access and size, fitness is the bytes moved.
    """
    start = time.perf_counter()
    if mode not in MODES:
        raise InvalidValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if not time_limit >= 0:
        raise InvalidValueError(f"a time limit of {time_limit} seconds")
    if segments is not None and mode == "unsegmented":
        raise InvalidValueError("a plan without segments takes no number of them")
    problem = _problem(trace)
    limit = parse_size(capacity, trace.page if isinstance(trace, Trace) else None)
    if limit < 0:
        raise InvalidValueError(f"a capacity of {limit} bytes")
    sizes = largest_segments(problem, limit, segments) if mode != "unsegmented" else ()
    planning = _Planning(problem, limit, mode, sizes, seed, start, time_limit, effort, pool, progress)
    return planning.run(segments)


def _problem(trace: Trace | str | PathLike[str] | Migration | Iterable[ev.Event]) -> Migration:
    if isinstance(trace, Migration):
        return trace
    return read_migration(Trace(trace) if isinstance(trace, (str, PathLike)) else trace)


def largest_segments(problem: Migration, capacity: int, count: int | None = None) -> tuple[int, ...]:
    """The sizes of the largest objects that are accessed: ``count`` of them, or as many as fit the capacity.

    Raises
    ------
    InvalidValueError
        There are not so many objects.
    """
    sizes = np.sort(problem.size[problem.chosen])[::-1]
    if count is None:
        return tuple(sizes[: int(np.searchsorted(np.cumsum(sizes), capacity, side="right"))].tolist())
    if count < 1:
        raise InvalidValueError(f"{count} segments")
    if count > len(sizes):
        raise InvalidValueError(f"{count} segments of the sizes of {len(sizes)} objects")
    return tuple(sizes[:count].tolist())


class _Planning:
    def __init__(
        self,
        problem: Migration,
        capacity: int,
        mode: str,
        sizes: tuple[int, ...],
        seed: int,
        start: float,
        time_limit: float,
        effort: Effort | None,
        pool: Pool | None,
        progress: Progress | None,
    ) -> None:
        self.problem = problem
        self.capacity = capacity
        self.mode = mode
        self.sizes = sizes
        self.seed = seed
        self.start = start
        self.search_start = start
        self.time_limit = time_limit
        self.effort = Effort() if effort is None else effort
        self.pool = Threads() if pool is None else pool
        self.progress = progress
        self.relaxation: Relaxation | None = None

    def run(self, asked: int | None) -> SegmentPlan:
        problem = self.problem
        oversized = first_oversized_step(problem, self.capacity)
        if oversized is not None:
            return self._infeasible(oversized.why, oversized.step)
        gaps = gaps_of(problem)
        self.relaxation = relax(problem, self.capacity, gaps)
        self.search_start = time.perf_counter()
        if not len(problem.chosen):
            return self._plan(np.zeros(0, np.int64), np.zeros(0, np.int64), 0, True, "nothing to move")
        if self.mode == "unsegmented":
            deadline = self.search_start + self.time_limit
            residency = plan_residency(
                problem,
                self.capacity,
                self.relaxation.lower_bound,
                self.relaxation.kept,
                gaps,
                self.seed & _SEEDS,
                deadline,
            )
            return self._plan(residency.dropped, None, residency.migrated_bytes, residency.optimal, residency.method)
        if asked is not None and sum(self.sizes) > self.capacity:
            of = f"{asked} segments of the sizes of the largest objects"
            return self._infeasible(f"{of} take {sum(self.sizes)} bytes, more than the capacity of {self.capacity}")
        return self._segmented(Task(self.sizes, self.mode == "exclusive", self.relaxation.lower_bound))

    def _until(self, share: float) -> float:
        return self.search_start + share * self.time_limit

    def _segmented(self, task: Task) -> SegmentPlan:
        problem = self.problem
        unservable = first_unservable_step(problem, task, max(1.0, self.time_limit))
        if unservable is not None:
            return self._infeasible(unservable.why, unservable.step)
        islands = evolve_all(problem, task, self.effort, self.seed, self._until(_EVOLVED), self.pool, self.progress)
        method = "genetic"
        starts = [island.best(len(problem.chosen)) for island in islands]
        if islands[0].cost[0] > 0:
            answer = find_assignment(problem, task, max(1.0, self.time_limit))
            if isinstance(answer, Infeasible):
                return self._infeasible(answer.why, answer.step)
            if answer is None:
                step = self._first_conflict(task, starts[0])
                why = f"no assignment was found that serves {problem.name(step)}; that there is none is not proven"
                return self._infeasible(why, step)
            starts = [answer, *starts[1:]]
            method = "constructed"
        homes, moved = starts[0], islands[0].cost[1]
        if method == "constructed" or moved > task.goal:
            self._tell("searching", moved)
            searched = self._annealed(task, starts)
            if method == "constructed" or searched.cost < (0, moved):
                homes, moved = searched.best(len(problem.chosen)), searched.cost[1]
                method += ", local search"
        homes, moved, proven, better = self._branched(task, homes, moved)
        method = "branch and bound" if better else method
        left = max(0.0, self._until(1.0) - time.perf_counter())
        dropped, excess, moved, exact = _core.settle(
            problem.core, task.sizes, task.exclusive, homes, _SETTLE_ROUNDS, self.seed & _SEEDS, left
        )
        assert excess == 0
        optimal = moved <= task.goal or (proven and exact)
        return self._plan(dropped, homes, moved, optimal, method)

    def _annealed(self, task: Task, starts: list[Column]) -> Island:
        moves = _MOVES_AN_OBJECT * len(self.problem.chosen) if self.effort.local else 0
        return anneal_all(self.problem, task, starts, moves, self.seed, self._until(_ANNEALED), self.pool)[0]

    def _branched(self, task: Task, homes: Column, moved: int) -> tuple[Column, int, bool, bool]:
        if moved <= task.goal:
            return homes, moved, True, False
        left = max(0.0, self._until(_BRANCHED) - time.perf_counter())
        found, least, proven = _core.branch(self.problem.core, task.sizes, task.exclusive, moved, _BRANCH_NODES, left)
        return (homes if found is None else found), least, proven, found is not None

    def _first_conflict(self, task: Task, homes: Column) -> int:
        """The first step that an assignment does not serve."""
        number = np.full(len(self.problem.size), -1, np.int64)
        number[self.problem.chosen] = np.arange(len(self.problem.chosen))
        entering = self.problem.entering
        taken: dict[tuple[int, int], int] = {}
        for o, t in zip(self.problem.object[entering].tolist(), self.problem.step[entering].tolist(), strict=True):
            segment = int(homes[number[o]])
            before = taken.get((t, segment))
            size = int(self.problem.size[o]) + (before or 0)
            if (task.exclusive and before is not None) or size > task.segments[segment]:
                return int(t)
            taken[t, segment] = size
        return 0

    def _tell(self, phase: str, moved: int) -> None:
        if self.progress is not None:
            self.progress(phase, moved)

    def _plan(self, dropped: Column, homes: Column | None, moved: int, optimal: bool, method: str) -> SegmentPlan:
        problem = self.problem
        assert self.relaxation is not None
        every = np.zeros(len(problem.object), bool)
        every[problem.entering] = dropped != 0
        where = np.full(len(problem.size), -1, np.int64)
        if homes is not None:
            where[problem.chosen] = homes
        plan = self._result(
            homes=where,
            dropped=every,
            feasible=True,
            migrated_bytes=moved,
            optimal=optimal or moved <= self.relaxation.lower_bound,
            method=method,
        )
        counted = plan.check().bytes
        if counted != moved:
            raise PlanError(f"the plan moves {counted} bytes, not the {moved} that the search counted")
        return plan

    def _infeasible(self, why: str, step: int | None = None) -> SegmentPlan:
        return self._result(
            homes=np.full(len(self.problem.size), -1, np.int64),
            dropped=np.zeros(len(self.problem.object), bool),
            feasible=False,
            infeasible_step=step,
            reason=why,
        )

    def _result(self, **fields: Any) -> SegmentPlan:
        defaults: dict[str, Any] = {
            "infeasible_step": None,
            "reason": "",
            "migrated_bytes": None,
            "optimal": False,
            "method": "",
        }
        return SegmentPlan(
            problem=self.problem,
            mode=self.mode,
            capacity=self.capacity,
            segments=self.sizes,
            lower_bound=None if self.relaxation is None else self.relaxation.lower_bound,
            seed=self.seed,
            seconds=time.perf_counter() - self.start,
            **{**defaults, **fields},
        )
