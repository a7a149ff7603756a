"""Islands of the genetic algorithm, on this machine's cores or wherever a pool runs them.

Each island evolves for some generations by itself; then its best goes to the next. What an island does depends on
the seed alone, not on where it runs or how many run at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from .. import _core
from ..buffers import Column
from .problem import Migration

__all__ = ["GREEDY", "Effort", "Island", "Pool", "Task", "Threads", "anneal_all", "evolve_all", "found", "greedy"]


class Pool(Protocol):
    """Where tasks run."""

    def width(self) -> int:
        """How many run at once."""

    def map(self, function: Callable[..., Any], problem: Migration, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """``function(problem, *call)`` of each call, in their order."""


class Threads:
    """This process: the inner loops need no interpreter lock."""

    def width(self) -> int:
        """One a core."""
        return os.cpu_count() or 1

    def map(self, function: Callable[..., Any], problem: Migration, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See :class:`Pool`."""
        problem.core  # noqa: B018  once, for all of them
        with ThreadPoolExecutor(min(len(calls), self.width())) as pool:
            return list(pool.map(lambda call: function(problem, *call), calls))


@dataclass(frozen=True)
class Task:
    """What all islands share."""

    segments: tuple[int, ...]
    exclusive: bool
    goal: int

    @property
    def sizes(self) -> Column:
        """The segments as a column."""
        return np.array(self.segments, np.int64)


@dataclass(frozen=True)
class Effort:
    """How much is done.

    Attributes
    ----------
    islands, population : int
        How many, and individuals on each.
    generations : int
        Between two exchanges.
    patience : int
        Exchanges without a better individual before it ends.
    local : bool
        Whether children are improved by moves of single objects.
    most : int
        Exchanges at most.
    """

    islands: int = 4
    population: int = 32
    generations: int = 20
    patience: int = 4
    local: bool = True
    most: int = 500


@dataclass(frozen=True)
class Island:
    """Assignments, best first, with their costs: one row of homes after the other."""

    rows: Column
    excess: Column
    moved: Column

    @property
    def cost(self) -> tuple[int, int]:
        """Of the best: what does not fit, and bytes moved."""
        return int(self.excess[0]), int(self.moved[0])

    def best(self, objects: int) -> Column:
        """The best assignment."""
        return self.rows[:objects]


_GREEDY_SHARE = 1.5

# By whether segments are exclusive: orders of the inner loops' greedy assignment, and whether it takes the tightest of
# equal segments; one for each of the first islands.
GREEDY = {True: ((2, True), (2, False)), False: ((1, False), (2, False))}


def greedy(problem: Migration, task: Task, order: int, tight: bool, seconds: float) -> Island:
    """One assignment, made one object after the other, each where it costs least."""
    return Island(*_core.greedy_homes(problem.core, task.sizes, task.exclusive, order, tight, seconds))


def found(
    problem: Migration, task: Task, count: int, seed: int, kind: tuple[int, bool] | None, seconds: float
) -> Island:
    """A first generation at random, but for one that is greedy where a kind is given."""
    island = Island(*_core.first_generation(problem.core, task.sizes, task.exclusive, count, seed, seconds))
    if kind is None:
        return island
    return _with_guest(island, greedy(problem, task, *kind, seconds), len(problem.chosen))


def evolve(problem: Migration, task: Task, island: Island, effort: Effort, seed: int, seconds: float) -> Island:
    """Some generations on one island."""
    *columns, _ = _core.evolve(
        problem.core,
        task.sizes,
        task.exclusive,
        island.rows,
        seed,
        effort.generations,
        effort.generations,
        effort.local,
        task.goal,
        seconds,
    )
    return Island(*columns)


def anneal(problem: Migration, task: Task, homes: Column, moves: int, seed: int, seconds: float) -> Island:
    """Local search from one assignment."""
    columns = _core.anneal(problem.core, task.sizes, task.exclusive, homes, seed, moves, task.goal, seconds)
    return Island(*columns)


def evolve_all(
    problem: Migration,
    task: Task,
    effort: Effort,
    seed: int,
    deadline: float,
    pool: Pool,
    progress: Callable[[str, int], None] | None = None,
) -> list[Island]:
    """All islands, until the goal, the patience or the time is reached; the best first."""

    def left() -> float:
        return _share(deadline, effort.islands, pool)

    kinds = [*(GREEDY[task.exclusive] if effort.local else ()), *[None] * effort.islands]
    # A greedy start is worth a part of what comes after, where that is all there is time for.
    seconds = _GREEDY_SHARE * max(0.0, deadline - time.perf_counter())
    first = [(task, effort.population, _seed(seed, i), kinds[i], seconds) for i in range(effort.islands)]
    islands = [_sorted(island, len(problem.chosen)) for island in pool.map(found, problem, first)]
    waited = 0
    n = len(problem.chosen)
    for epoch in range(effort.most):
        best = min(island.cost for island in islands)
        if progress is not None and best[0] == 0:
            progress("evolving", best[1])
        if best <= (0, task.goal) or waited >= effort.patience or left() == 0:
            break
        calls = [(task, island, effort, _seed(seed, i, epoch), left()) for i, island in enumerate(islands)]
        islands = pool.map(evolve, problem, calls)
        waited = 0 if min(island.cost for island in islands) < best else waited + 1
        islands = [_with_guest(island, islands[i - 1], n) for i, island in enumerate(islands)]
    return sorted(islands, key=lambda island: island.cost)


def anneal_all(
    problem: Migration,
    task: Task,
    starts: Sequence[Column],
    moves: int,
    seed: int,
    deadline: float,
    pool: Pool,
) -> list[Island]:
    """Local search from several assignments; the best first."""
    seconds = _share(deadline, len(starts), pool)
    calls = [(task, homes, moves, _seed(seed, i, 1 << 20), seconds) for i, homes in enumerate(starts)]
    return sorted(pool.map(anneal, problem, calls), key=lambda island: island.cost)


def _share(deadline: float, tasks: int, pool: Pool) -> float:
    """Seconds for each of so many tasks, where not all run at once."""
    return max(0.0, deadline - time.perf_counter()) / -(-tasks // pool.width())


def _with_guest(island: Island, neighbour: Island, objects: int) -> Island:
    """The neighbour's best takes the place of the last."""
    if neighbour is island or len(island.moved) < 2:
        return island
    rows, excess, moved = island.rows.copy(), island.excess.copy(), island.moved.copy()
    rows[-objects:] = neighbour.rows[:objects]
    excess[-1], moved[-1] = neighbour.excess[0], neighbour.moved[0]
    return replace(island, rows=rows, excess=excess, moved=moved)


def _sorted(island: Island, objects: int) -> Island:
    order = np.lexsort((np.arange(len(island.moved)), island.moved, island.excess))
    rows = np.ascontiguousarray(island.rows.reshape(-1, objects)[order].reshape(-1))
    return Island(rows, island.excess[order], island.moved[order])


def _seed(seed: int, island: int, epoch: int = -1) -> int:
    """A number of its own for each island and epoch."""
    mixed = (seed * 0x9E3779B97F4A7C15 + island * 0xBF58476D1CE4E5B9 + (epoch + 1) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 29)) & (2**64 - 1)
