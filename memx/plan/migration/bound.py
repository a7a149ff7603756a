"""A bound on the bytes that any plan moves: the linear relaxation of keeping contents between accesses.

For each object and gap between accesses of which the later reads, ``y`` says how much of the contents stays; for
each write whose contents are needed, ``z`` how much is written back. What a step needs and what stays over it fit the
capacity. HiGHS solves it; the bound is then computed anew from its multipliers, in whole numbers, and holds whatever
they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..buffers import Column
from ..highs import run, solver
from .problem import READS, WRITES, Migration

__all__ = ["Gaps", "Relaxation", "gaps_of", "relax"]

_SCALE = 1 << 40


@dataclass(frozen=True)
class Gaps:
    """What may be kept between two accesses.

    Attributes
    ----------
    access : int64 array
        Of each gap, the access that reads again, as a position in the problem's accesses.
    begin, end : int64 arrays
        The steps strictly between: ``begin <= step < end``.
    size : int64 array
    epoch : int64 array
        The write whose contents stay, where dropping them means to write them back; else -1.
    base : int
        Bytes that move in any case: first reads, and the last contents of what is kept.
    """

    access: Column
    begin: Column
    end: Column
    size: Column
    epoch: Column
    base: int


def gaps_of(problem: Migration) -> Gaps:
    """The gaps of a problem that are not empty."""
    rows: list[tuple[int, int, int, int, int]] = []
    base = 0
    last_write: dict[int, int] = {}
    for k, (o, mode) in enumerate(zip(problem.object.tolist(), problem.mode.tolist(), strict=True)):
        if mode & WRITES:
            last_write[o] = k
    kept_contents = {k for o, k in last_write.items() if problem.keep[o]}
    base += sum(int(problem.size[problem.object[k]]) for k in kept_contents)
    before: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for k, (o, t, mode) in enumerate(
        zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), strict=True)
    ):
        size = int(problem.size[o])
        if mode & READS:
            if o not in before:
                base += size
            elif before[o] + 1 < t and size:
                rows.append((k, before[o] + 1, t, size, epochs.get(o, -1)))
        if mode & WRITES:
            epochs[o] = -1 if k in kept_contents else k
        before[o] = t
    table = np.array(rows, np.int64).reshape(-1, 5)
    access, begin, end, sizes, epoch = (np.ascontiguousarray(table[:, i]) for i in range(5))
    return Gaps(access, begin, end, sizes, epoch, base)


@dataclass(frozen=True)
class Relaxation:
    """A bound, and how much of each gap of :func:`gaps_of` the relaxation keeps (0 to 1)."""

    lower_bound: int
    kept: npt.NDArray[np.float64]


def relax(problem: Migration, capacity: int, gaps: Gaps | None = None) -> Relaxation:
    """Solve the relaxation; every step must fit the capacity.

    Returns
    -------
    Relaxation
        The bound is rounded up to a whole number of the bytes that all sizes are multiples of.
    """
    gaps = gaps_of(problem) if gaps is None else gaps
    model = Model(problem, capacity, gaps)
    if not len(gaps.size) or not model.tight:
        return Relaxation(gaps.base, np.ones(len(gaps.size)))
    kept, capacity_price, epoch_price = model.solve()
    grain = int(np.gcd.reduce(problem.size[problem.size > 0]))
    bound = _certified(gaps, model.room, capacity_price, epoch_price)
    return Relaxation(max(gaps.base, -(-bound // (_SCALE * grain)) * grain), kept)


class Model:
    """The relaxation in HiGHS's form, or with ``whole`` the program itself.

    Columns: for each gap the part that stays; for each epoch the part written back; for each step the bytes that stay
    over it. Rows: the bytes over a step are those over the step before, and what comes and goes; an epoch is written
    back at least as far as any gap of it does not stay.
    """

    def __init__(self, problem: Migration, capacity: int, gaps: Gaps) -> None:
        self.gaps = gaps
        self.room = capacity - problem.step_bytes
        self.steps = len(problem.steps)
        change = np.zeros(self.steps + 1, np.int64)
        np.add.at(change, gaps.begin, gaps.size)
        np.add.at(change, gaps.end, -gaps.size)
        self.tight = bool(np.any(np.cumsum(change)[: self.steps] > self.room))
        self.owing = np.flatnonzero(gaps.epoch >= 0)
        self.epochs, self.epoch_of = np.unique(gaps.epoch[self.owing], return_inverse=True)

    def solve(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What each gap keeps, the price of a byte over each step, and of each owing gap's row, in bytes."""
        highs = self.build(whole=False)
        run(highs)
        solution = highs.getSolution()
        n, e = len(self.gaps.size), len(self.epochs)
        kept = np.clip(np.array(solution.col_value[:n]), 0, 1)
        price = np.maximum(0, -np.array(solution.col_dual[n + e : n + e + self.steps]))
        row = np.maximum(0, np.array(solution.row_dual[self.steps : self.steps + len(self.owing)]))
        return kept, price, row

    def columns_of(self, kept: npt.NDArray[Any], unit: int | None = None) -> npt.NDArray[np.float64]:
        """The columns' values where so much of each gap stays."""
        unit = self._unit(unit)
        written = np.zeros(len(self.epochs))
        np.maximum.at(written, self.epoch_of, 1.0 - kept[self.owing])
        over = np.zeros(self.steps + 1)
        np.add.at(over, self.gaps.begin, self.gaps.size * kept / unit)
        np.add.at(over, self.gaps.end, -self.gaps.size * kept / unit)
        return np.concatenate([kept.astype(np.float64), written, np.cumsum(over)[: self.steps]])

    def _unit(self, unit: int | None) -> int:
        return int(self.gaps.size.max()) if unit is None else unit

    def build(self, *, whole: bool, unit: int | None = None) -> Any:
        """The model loaded into HiGHS, its variables whole numbers if asked for.

        Bytes count in units, by default of the largest gap's.
        """
        import highspy

        gaps, steps = self.gaps, self.steps
        n, e, w = len(gaps.size), len(self.epochs), len(self.owing)
        unit = self._unit(unit)
        size = gaps.size / unit
        epoch_size = np.zeros(e)
        epoch_size[self.epoch_of] = size[self.owing]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n + e + steps, steps + w
        lp.sense_ = highspy.ObjSense.kMinimize
        lp.offset_ = float(size.sum())
        lp.col_cost_ = np.concatenate([-size, epoch_size, np.zeros(steps)])
        lp.col_lower_ = np.zeros(n + e + steps)
        lp.col_upper_ = np.concatenate([np.ones(n + e), self.room / unit])
        lp.row_lower_ = np.concatenate([np.zeros(steps), np.ones(w)])
        lp.row_upper_ = np.concatenate([np.zeros(steps), np.full(w, highspy.kHighsInf)])
        # Row t: over(t) - over(t - 1) - what begins at t + what ends at t = 0.
        step = np.arange(steps)
        ends = np.flatnonzero(gaps.end < steps)
        rows = np.concatenate([step, step[1:], gaps.begin, gaps.end[ends], steps + np.arange(w), steps + np.arange(w)])
        columns = np.concatenate([n + e + step, n + e + step[:-1], np.arange(n), ends, self.owing, n + self.epoch_of])
        values = np.concatenate(
            [np.ones(steps), -np.ones(max(0, steps - 1)), -size, size[ends], np.ones(w), np.ones(w)]
        )
        order = np.lexsort((rows, columns))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(n + e + steps + 1)).astype(np.int32)
        lp.a_matrix_.index_ = rows[order].astype(np.int32)
        lp.a_matrix_.value_ = values[order]
        if whole:
            kind = highspy.HighsVarType
            lp.integrality_ = [kind.kInteger] * n + [kind.kContinuous] * (e + steps)
        highs = solver()
        highs.passModel(lp)
        return highs


def _certified(
    gaps: Gaps, room: Column, capacity_price: npt.NDArray[np.float64], row_price: npt.NDArray[np.float64]
) -> int:
    """A lower bound by weak duality, times :data:`_SCALE`, from any prices.

    ``capacity_price`` is that of a byte over each step; ``row_price`` that of the row of each gap that owes, in units
    of the largest gap's bytes.
    """
    price = [round(float(p) * _SCALE) for p in capacity_price]
    total = [0]
    for p in price:
        total.append(total[-1] + p)
    bound: int = (gaps.base + sum(gaps.size.tolist())) * _SCALE
    bound -= sum(p * free for p, free in zip(price, room.tolist(), strict=True))
    largest = int(gaps.size.max())
    owed: dict[int, int] = {}
    rows = iter(row_price)
    for size, begin, end, epoch in zip(
        gaps.size.tolist(), gaps.begin.tolist(), gaps.end.tolist(), gaps.epoch.tolist(), strict=True
    ):
        multiplier = 0
        if epoch >= 0:
            # Of z + y >= 1 in bytes of this object, and no more than the epoch's own.
            multiplier = round(float(next(rows)) * largest / size * _SCALE)
            multiplier = min(multiplier, _SCALE - owed.get(epoch, 0))
            owed[epoch] = owed.get(epoch, 0) + multiplier
        gain = total[end] - total[begin] - multiplier - _SCALE
        bound += size * (multiplier + min(0, gain))
    return bound
