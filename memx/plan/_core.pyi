"""The planner's inner loops (C++). Columns are C-contiguous int64; work runs without the GIL."""

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]

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
