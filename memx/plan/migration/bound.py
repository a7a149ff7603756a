"""A bound on the bytes that any plan moves: the linear relaxation of keeping contents between accesses.

For each object and gap between accesses of which the later reads, ``y`` says how much of the contents stays; for
each write whose contents are needed, ``z`` how much is written back. What a step needs and what stays over it fit the
capacity. HiGHS solves it; the bound is then computed anew from its multipliers, in whole numbers, and holds whatever
they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

    Where the problem is repeated, a gap may go on in the next round: it then lies from ``begin`` to the last step and
    from the first one to ``end``, which is not after ``begin``.
    """

    access: Column
    begin: Column
    end: Column
    size: Column
    epoch: Column
    base: int


def gaps_of(problem: Migration, repeats: Sequence[bool] | None = None) -> Gaps:
    """The gaps of a problem that are not empty.

    Parameters
    ----------
    problem : Migration
    repeats : sequence of bool, optional
        The problem is one round of many, and these objects live on from each to the next. The others begin and end
        where it costs nothing.
    """
    if repeats is not None:
        return _repeated(problem, repeats)
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
    return _columns(rows, base)


def _columns(rows: list[tuple[int, int, int, int, int]], base: int) -> Gaps:
    table = np.array(rows, np.int64).reshape(-1, 5)
    access, begin, end, sizes, epoch = (np.ascontiguousarray(table[:, i]) for i in range(5))
    return Gaps(access, begin, end, sizes, epoch, base)


def _repeated(problem: Migration, repeats: Sequence[bool]) -> Gaps:
    rows: list[tuple[int, int, int, int, int]] = []
    accesses: dict[int, list[int]] = {}
    for k, o in enumerate(problem.object.tolist()):
        accesses.setdefault(o, []).append(k)
    for o, ks in accesses.items():
        size = int(problem.size[o])
        writes = [k for k in ks if problem.mode[k] & WRITES]
        epoch = writes[-1] if writes and repeats[o] else -1
        previous = ks[-1] if repeats[o] else None
        for k in ks:
            begin = 0 if previous is None else int(problem.step[previous]) + 1
            end = int(problem.step[k])
            comes_round = previous is not None and previous >= k
            empty = begin == len(problem.steps) and end == 0 if comes_round else begin >= end
            if problem.mode[k] & READS and size and not empty:
                rows.append((k, begin, end, size, epoch))
            if problem.mode[k] & WRITES:
                epoch = k
            previous = k
    return _columns(rows, 0)


@dataclass(frozen=True)
class Relaxation:
    """A bound, and how much of each gap of :func:`gaps_of` the relaxation keeps (0 to 1)."""

    lower_bound: int
    kept: npt.NDArray[np.float64]


def relax(
    problem: Migration,
    capacity: int,
    gaps: Gaps | None = None,
    *,
    repeats: Sequence[bool] | None = None,
    time_limit: float = math.inf,
) -> Relaxation:
    """Solve the relaxation; every step must fit the capacity.

    Parameters
    ----------
    problem : Migration
    capacity : int
    gaps : Gaps, optional
        The problem's, if they are known.
    repeats : sequence of bool, optional
        Bound what one round of many moves on average, as :func:`gaps_of` has it.
    time_limit : float
        Seconds, after which the bound is what is proven by then.

    Returns
    -------
    Relaxation
        The bound is rounded up to a whole number of the bytes that all sizes are multiples of; an average is not.
    """
    gaps = gaps_of(problem, repeats) if gaps is None else gaps
    model = Model(problem, capacity, gaps)
    if not len(gaps.size) or not model.tight:
        return Relaxation(gaps.base, np.ones(len(gaps.size)))
    kept, capacity_price, epoch_price = model.solve(time_limit)
    bound = _certified(gaps, model.room, capacity_price, epoch_price)
    if repeats is not None:
        return Relaxation(max(0, bound // _SCALE), kept)
    grain = int(np.gcd.reduce(problem.size[problem.size > 0]))
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
        self.change_step, self.change_gap, self.change_sign = _changes(gaps)
        change = np.zeros(self.steps + 1, np.int64)
        np.add.at(change, self.change_step, self.change_sign * gaps.size[self.change_gap])
        self.tight = bool(np.any(np.cumsum(change)[: self.steps] > self.room))
        self.owing = np.flatnonzero(gaps.epoch >= 0)
        self.epochs, self.epoch_of = np.unique(gaps.epoch[self.owing], return_inverse=True)

    def solve(
        self, time_limit: float = math.inf
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """What each gap keeps, the price of a byte over each step, and of each owing gap's row, in bytes."""
        highs = self.build(whole=False)
        highs.setOptionValue("time_limit", time_limit)
        run(highs)
        solution = highs.getSolution()
        n, e = len(self.gaps.size), len(self.epochs)
        if not len(solution.col_dual):  # nothing in time
            return np.zeros(n), np.zeros(self.steps), np.zeros(len(self.owing))
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
        changed = self.change_sign * (self.gaps.size * kept)[self.change_gap] / unit
        np.add.at(over, self.change_step, changed)
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
        inside = self.change_step < steps
        changing = self.change_gap[inside]
        rows = np.concatenate([step, step[1:], self.change_step[inside], steps + np.arange(w), steps + np.arange(w)])
        columns = np.concatenate([n + e + step, n + e + step[:-1], changing, self.owing, n + self.epoch_of])
        values = np.concatenate(
            [
                np.ones(steps),
                -np.ones(max(0, steps - 1)),
                -self.change_sign[inside] * size[changing],
                np.ones(w),
                np.ones(w),
            ]
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


def _changes(gaps: Gaps) -> tuple[Column, Column, Column]:
    """Where gaps begin and end: step, gap, and 1 or -1. One that comes round begins again at the first step."""
    number = np.arange(len(gaps.size))
    round_ = number[(gaps.end <= gaps.begin) & (gaps.end > 0)]
    stops = number[gaps.end > 0]
    step = np.concatenate([gaps.begin, gaps.end[stops], np.zeros(len(round_), np.int64)])
    gap = np.concatenate([number, stops, round_])
    return step, gap, np.concatenate([np.ones(len(number), np.int64), np.full(len(stops), -1), np.ones_like(round_)])


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
        over = total[end] - total[begin] + (total[-1] if end <= begin else 0)
        gain = over - multiplier - _SCALE
        bound += size * (multiplier + min(0, gain))
    return bound
