"""Which allocations of a step are born on the host, so that the fewest bytes cross the bus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from ..trace import events as ev
from .buffers import Column
from .highs import run, solver

__all__ = ["Births", "plan_births"]

_GRAIN = 512


@dataclass(frozen=True)
class Births:
    """Where the allocations of a trace are born, in their order.

    Attributes
    ----------
    on_host : bool array
        Of each allocation that has bytes.
    crossing_bytes : int
        What the accesses of those on the host move over the bus.
    lower_bound : int
        No choice moves less.
    device_bytes : int
        The most that is alive on the device.
    """

    on_host: npt.NDArray[np.bool_]
    crossing_bytes: int
    lower_bound: int
    device_bytes: int


def plan_births(events: Iterable[ev.Event], device_limit: int) -> Births:
    """Choose for buffers that stay where they are born and are reached there (those of an eager resource).

    What is alive on the device at any time must fit `device_limit` bytes. An access of a buffer on the host moves the
    bytes that it names, each time. The linear relaxation (HiGHS) bounds what can be had and orders the choice; what it
    leaves open is settled greedily, most bytes of room for the least traffic first.

    Raises
    ------
    PlanError
        An allocation that must be on the device (``host_ok`` false) and others like it do not fit.
    """
    size, cost, begin, end, fixed, length = _read(events)
    live = _Live(size, begin, end, length)
    if fixed.any() and live.peak(~fixed) > device_limit:
        raise PlanError(f"what may not be on the host needs more than the device limit of {device_limit} bytes")
    preference, bound = _relaxed(live, cost, fixed, device_limit)
    # From all on the device: what the relaxation wants away first, until the rest fits; then back what need not be.
    rate = cost / np.maximum(size, 1)
    order = np.lexsort((rate, -np.round(preference, 6)))
    on_host = np.zeros(len(size), bool)
    held = live.profile(on_host)
    for i in order:
        if fixed[i] or not size[i] or held[begin[i] : end[i]].max(initial=0) <= device_limit:
            continue
        on_host[i] = True
        held[begin[i] : end[i]] -= size[i]
    for i in sorted(np.flatnonzero(on_host), key=lambda i: -cost[i]):
        if held[begin[i] : end[i]].max(initial=0) + size[i] <= device_limit:
            on_host[i] = False
            held[begin[i] : end[i]] += size[i]
    return Births(on_host, int(cost[on_host].sum()), bound, int(held.max(initial=0)))


class _Live:
    def __init__(self, size: Column, begin: Column, end: Column, length: int) -> None:
        self.size, self.begin, self.end, self.length = size, begin, end, length

    def profile(self, on_host: npt.NDArray[np.bool_]) -> Column:
        """Bytes alive on the device at each time."""
        change = np.zeros(self.length + 1, np.int64)
        there = ~on_host
        np.add.at(change, self.begin[there], self.size[there])
        np.add.at(change, self.end[there], -self.size[there])
        return np.cumsum(change)[: self.length]

    def peak(self, on_host: npt.NDArray[np.bool_]) -> int:
        return int(self.profile(on_host).max(initial=0))


def _read(events: Iterable[ev.Event]) -> tuple[Column, Column, Column, Column, npt.NDArray[np.bool_], int]:
    size: list[int] = []
    cost: list[int] = []
    begin: list[int] = []
    end: list[int] = []
    fixed: list[bool] = []
    live: dict[ev.Id, int] = {}
    time = 0
    for event in events:
        if isinstance(event, ev.Alloc) and event.size > 0:
            live[event.id] = len(size)
            size.append(-(-event.size // _GRAIN) * _GRAIN)
            cost.append(0)
            begin.append(time)
            end.append(-1)
            fixed.append(not event.host_ok)
            time += 1
        elif isinstance(event, ev.Free) and event.id in live:
            end[live.pop(event.id)] = time
        elif isinstance(event, ev.Kernel):
            for operand in (*event.reads, *event.writes):
                if operand.id in live:
                    i = live[operand.id]
                    cost[i] += size[i] if operand.bytes is None else operand.bytes
    columns = [np.array(values, np.int64) for values in (size, cost, begin, [e if e >= 0 else time for e in end])]
    return columns[0], columns[1], columns[2], columns[3], np.array(fixed, bool), time


def _relaxed(live: _Live, cost: Column, fixed: npt.NDArray[np.bool_], limit: int) -> tuple[npt.NDArray[Any], int]:
    """How much of each allocation the relaxation puts on the host, and what that costs at least."""
    over = live.profile(np.zeros(len(cost), bool)) > limit
    # A time at which something ends before the next begins says all that those before it say.
    last = np.zeros(live.length, bool)
    last[np.clip(live.end - 1, 0, max(0, live.length - 1))] = True
    times = np.flatnonzero(over & last)
    if not len(times):
        return np.zeros(len(cost)), 0
    import highspy

    first, stop = np.searchsorted(times, live.begin), np.searchsorted(times, live.end)
    unit = float(live.size.max())
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(times)
    lp.col_cost_ = cost / unit
    lp.col_lower_ = np.zeros(len(cost))
    lp.col_upper_ = np.where(fixed, 0.0, 1.0)
    lp.row_lower_ = (live.profile(np.zeros(len(cost), bool))[times] - limit) / unit
    lp.row_upper_ = np.full(len(times), highspy.kHighsInf)
    counts = stop - first
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rows = [np.arange(f, s) for f, s in zip(first, stop, strict=True)]
    lp.a_matrix_.index_ = np.concatenate(rows).astype(np.int32)
    lp.a_matrix_.value_ = np.repeat(live.size / unit, counts)
    highs = solver()
    highs.passModel(lp)
    run(highs)
    solution = highs.getSolution()
    value = np.clip(np.array(solution.col_value), 0, 1)
    price = np.maximum(0, np.array(solution.row_dual))
    # By weak duality any prices bound the cost from below; these are the best.
    charge = np.array([price[f:s].sum() for f, s in zip(first, stop, strict=True)]) * live.size / unit
    slack = np.minimum(0, lp.col_cost_ - charge)
    bound = float((price * lp.row_lower_).sum() + slack[~fixed].sum()) * unit
    return value, max(0, int(np.floor(bound * (1 - 1e-9))))
