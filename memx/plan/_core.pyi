"""The planner's inner loops (C++). Columns are C-contiguous int64; work runs without the GIL."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

class Problem:
    """Buffers over sections of time: lifetimes not empty, sizes positive, `fixed` -1 where free."""

    def __init__(self, lower: Column, upper: Column, size: Column, alignment: Column, fixed: Column) -> None: ...
    @property
    def bound(self) -> int:
        """No layout is lower: the load, with what alignment must waste."""
    @property
    def sections(self) -> int: ...
    @property
    def pairs(self) -> int:
        """Pairs of buffers alive together."""

def greedy(problem: Problem, capacity: int, seconds: float) -> tuple[Column, int, str]:
    """Offsets, height and method of the best greedy layout; capacity -1: as low as can be."""

def searchable(problem: Problem) -> bool:
    """Whether `search` can hold it."""

def search(
    problem: Problem,
    start: Column,
    capacity: int,
    to_the_byte: bool,
    seeded: bool,
    seed: int,
    seconds: float,
) -> tuple[Column, int, str, int]:
    """Offsets, height, method ("" if no better than `start`) and proven bound.

    Capacity -1: as low as can be, to the byte or less than a unit of alignment above the bound. Seeded: what
    the genetic algorithm finds good is tried too, after a while.
    """

def genetic(problem: Problem, start: Column, capacity: int, seed: int, seconds: float) -> tuple[Column, int, str, int]:
    """As `search`, by the genetic algorithm alone."""

def balanced_chunks(
    total: int,
    cost_a: Callable[[int], float],
    cost_b: Callable[[int], float],
    shortest: int,
    align: int,
    most: int,
    conflict: float,
) -> list[int]:
    """See :func:`memx.plan.plan_chunks`; `most` 0: any number."""

class Accesses:
    """A migration problem: accesses in the order of their steps, mode 1 reads, 2 writes, 3 both; sizes positive.

    Homes are segments by object; costs are (what does not fit, bytes moved).
    """

    def __init__(self, size: Column, keep: Column, object: Column, step: Column, mode: Column) -> None: ...
    @property
    def base(self) -> int:
        """Bytes that any plan moves."""

def first_generation(
    problem: Accesses, segments: Column, exclusive: bool, count: int, seed: int, seconds: float
) -> tuple[Column, Column, Column]:
    """Random assignments: rows of homes, excess and bytes moved of each, best first."""

def evolve(
    problem: Accesses,
    segments: Column,
    exclusive: bool,
    population: Column,
    seed: int,
    generations: int,
    patience: int,
    local: bool,
    goal: int,
    seconds: float,
) -> tuple[Column, Column, Column, int]:
    """As `first_generation`, after some generations; and how many passed since the best got better."""

def anneal(
    problem: Accesses,
    segments: Column,
    exclusive: bool,
    homes: Column,
    seed: int,
    moves: int,
    goal: int,
    seconds: float,
) -> tuple[Column, Column, Column]:
    """One assignment after local search, and so many moves of annealing."""

def greedy_homes(
    problem: Accesses, segments: Column, exclusive: bool, order: int, tight: bool, seconds: float
) -> tuple[Column, Column, Column]:
    """One object after the other where it costs least, in order of access (0), size (1) or bytes accessed (2).

    Among equals in the tightest segment, or else in the first.
    """

def branch(
    problem: Accesses, segments: Column, exclusive: bool, below: int, nodes: int, seconds: float
) -> tuple[Column | None, int, bool]:
    """The best assignment below a cost, if there is one, its cost or that, and whether there is no better."""

def assignable(
    problem: Accesses, segments: Column, exclusive: bool, steps: int, nodes: int, seconds: float
) -> tuple[bool, Column | None] | None:
    """Whether the first steps can be served, and how; None if that took too long."""

def settle(
    problem: Accesses, segments: Column, exclusive: bool, homes: Column, rounds: int, seed: int, seconds: float
) -> tuple[Column, int, int, bool]:
    """For each access whether the contents were dropped before it; excess, bytes moved, and whether that is the least."""

def hold(
    problem: Accesses, capacity: int, priority: Numbers, rounds: int, goal: int, seed: int, seconds: float
) -> tuple[Column, int, int, bool]:
    """As `settle`, without segments; `priority` says for each access how much to keep its contents."""

def rule(problem: Accesses, capacity: int, rule: int) -> tuple[Column, int, int, bool]:
    """As `hold`, by one rule alone."""
