"""Whether segments can serve every step, and which step they cannot."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from .. import _core
from ..buffers import Column
from .islands import Task
from .problem import Migration

__all__ = ["Infeasible", "find_assignment", "first_oversized_step", "first_unservable_step"]

_NODES = 200_000
_NODES_A_STEP = 20_000


@dataclass(frozen=True)
class Infeasible:
    """A step that cannot be met, and why; ``proven``, or only not met by what was tried."""

    step: int
    why: str
    proven: bool = True


def first_oversized_step(problem: Migration, capacity: int) -> Infeasible | None:
    """The first step that needs more than the capacity."""
    over = np.flatnonzero(problem.step_bytes > capacity)
    if not len(over):
        return None
    step = int(over[0])
    needs = f"needs {problem.step_bytes[step]} bytes at once, more than the capacity of {capacity}"
    return Infeasible(step, f"{problem.name(step)} {needs}")


def first_unservable_step(problem: Migration, task: Task, seconds: float) -> Infeasible | None:
    """The first step whose objects by themselves do not go into the segments."""
    deadline = time.perf_counter() + seconds
    sizes = problem.size[problem.object]
    starts = np.searchsorted(problem.step, np.arange(len(problem.steps) + 1))
    segments = np.array(task.segments, np.int64)
    seen: set[tuple[int, ...]] = set()
    for step in range(len(problem.steps)):
        mine = sizes[starts[step] : starts[step + 1]]
        mine = np.sort(mine[mine > 0])[::-1]
        key = tuple(mine.tolist())
        # One object to a segment: the largest to the largest, if at all.
        alone = len(mine) <= len(segments) and bool(np.all(mine <= segments[: len(mine)]))
        if alone or key in seen:
            continue
        seen.add(key)
        if task.exclusive:
            how = "each in a segment of its own"
        elif _first_fit(key, task.segments) or not _cannot(key, task, deadline - time.perf_counter()):
            continue
        else:
            how = "within its segment"
        why = f"{problem.name(step)} needs {len(mine)} objects of {int(mine.sum())} bytes at once, {how}"
        return Infeasible(step, f"{why}, and the {len(segments)} segments have no such places")
    return None


def _first_fit(descending: tuple[int, ...], segments: tuple[int, ...]) -> bool:
    room = list(segments)
    for size in descending:
        place = next((i for i in range(len(room) - 1, -1, -1) if room[i] >= size), None)
        if place is None:
            return False
        room[place] -= size
    return True


def _cannot(sizes: tuple[int, ...], task: Task, seconds: float) -> bool:
    step = Migration.of(sizes, [[(o, "r") for o in range(len(sizes))]])
    return _core.assignable(step.core, task.sizes, task.exclusive, 1, _NODES_A_STEP, seconds) == (False, None)


def find_assignment(problem: Migration, task: Task, seconds: float) -> Column | Infeasible | None:
    """An assignment that serves every step, or the step from which on there is none; None: not known."""
    deadline = time.perf_counter() + seconds

    def ask(steps: int) -> tuple[bool, Column | None] | None:
        left = max(0.0, deadline - time.perf_counter())
        return _core.assignable(problem.core, task.sizes, task.exclusive, steps, _NODES, left)

    answer = ask(len(problem.steps))
    if answer is None:
        return None
    if answer[0]:
        return answer[1]
    low, high = 0, len(problem.steps)  # the first `low` steps can be served, `high` cannot
    while high - low > 1:
        middle = (low + high) // 2
        answer = ask(middle)
        if answer is None:
            break
        if answer[0]:
            low = middle
        else:
            high = middle
    what = "apart" if task.exclusive else "within their segments"
    why = f"no assignment to the {len(task.segments)} segments keeps the objects of each step {what} up to "
    return Infeasible(high - 1, why + problem.name(high - 1))
