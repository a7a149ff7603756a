"""The migration problem of a trace: which objects its operations access, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import PlanError, TraceError
from ...trace import Trace
from ...trace import events as ev
from .. import _core
from ..buffers import Column

__all__ = ["KEPT_TAGS", "READS", "WRITES", "Flags", "Migration", "Step", "read_migration"]

READS, WRITES = 1, 2
Flags: TypeAlias = npt.NDArray[np.bool_]

KEPT_TAGS = ("keep", "persistent")
"""Tags of objects whose contents must be on the host at the end, or still be what they were there."""

_MODES = {"r": READS, "w": WRITES, "rw": READS | WRITES}


@dataclass(frozen=True)
class Step:
    """One operation: where it stands in its trace (0: nowhere) and what it is called."""

    line: int = 0
    name: str | None = None


@dataclass(frozen=True)
class Migration:
    """Objects with sizes, and operations that need some of them on the device, all at once.

    Everything starts on the host. An access that only writes produces the whole object: nothing is brought in for it.

    Attributes
    ----------
    ids : sequence of int or str
        The objects' names.
    size : int64 array
        Bytes.
    keep : bool array
        Whether the contents are needed at the end.
    steps : sequence of Step
        The operations in order.
    object, step, mode : int64 arrays
        The accesses in order of their steps, one an object and step; a mode is :data:`READS`, :data:`WRITES` or both.
    """

    ids: Sequence[ev.Id]
    size: Column
    keep: Flags
    steps: Sequence[Step]
    object: Column = field(repr=False)
    step: Column = field(repr=False)
    mode: Column = field(repr=False)

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        steps: Iterable[Iterable[tuple[int, str]]],
        keep: Iterable[int] = (),
        ids: Sequence[ev.Id] | None = None,
    ) -> Migration:
        """A problem in numbers: each step lists (object, ``"r"``, ``"w"`` or ``"rw"``); ``keep`` lists objects."""
        rows: list[tuple[int, int, int]] = []
        count = 0
        for count, accesses in enumerate(steps, 1):
            modes: dict[int, int] = {}
            for number, mode in accesses:
                modes[number] = modes.get(number, 0) | _MODES[mode]
            rows += [(number, count - 1, mode) for number, mode in modes.items()]
        return cls._made(list(range(len(sizes))) if ids is None else ids, sizes, set(keep), [Step()] * count, rows)

    @classmethod
    def _made(
        cls,
        ids: Sequence[ev.Id],
        sizes: Sequence[int],
        keep: set[int],
        steps: Sequence[Step],
        rows: list[tuple[int, int, int]],
    ) -> Migration:
        table = np.array(rows, np.int64).reshape(-1, 3)
        kept = np.zeros(len(sizes), bool)
        kept[sorted(keep)] = True
        columns = (np.ascontiguousarray(table[:, i]) for i in range(3))
        return cls(ids, np.array(sizes, np.int64), kept, steps, *columns)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is for this process only."""
        return {name: value for name, value in self.__dict__.items() if name != "core"}

    def name(self, step: int) -> str:
        """A step in words: its number from 0 and, where it has them, its name and line."""
        where = self.steps[step]
        more = [f"line {where.line}"] if where.line else []
        if where.name:
            more.append(repr(where.name))
        return f"step {step}" + (f" ({', '.join(more)})" if more else "")

    @cached_property
    def chosen(self) -> Column:
        """The objects that take part: accessed at all, and with bytes."""
        used = np.zeros(len(self.size), bool)
        used[self.object] = True
        return np.flatnonzero(used & (self.size > 0))

    @cached_property
    def entering(self) -> Column:
        """The accesses of :attr:`chosen` objects."""
        return np.flatnonzero(self.size[self.object] > 0)

    @cached_property
    def core(self) -> _core.Accesses:
        """The same for the inner loops: :attr:`chosen` objects and :attr:`entering` accesses alone."""
        number = np.full(len(self.size), -1, np.int64)
        number[self.chosen] = np.arange(len(self.chosen))
        return _core.Accesses(
            self.size[self.chosen],
            self.keep[self.chosen].astype(np.int64),
            number[self.object[self.entering]],
            self.step[self.entering],
            self.mode[self.entering],
        )

    @cached_property
    def step_bytes(self) -> Column:
        """Bytes that each step needs."""
        needed = np.zeros(len(self.steps), np.int64)
        np.add.at(needed, self.step, self.size[self.object])
        return needed


class _Reading:
    def __init__(self, rounding: int) -> None:
        self._rounding = rounding
        self.ids: list[ev.Id] = []
        self.sizes: list[int] = []
        self.keep: set[int] = set()
        self.steps: list[Step] = []
        self.rows: list[tuple[int, int, int]] = []
        self._asked: list[int] = []
        self._live: dict[ev.Id, int] = {}
        self._times: dict[ev.Id, int] = {}
        self._produced: set[int] = set()

    def take(self, event: ev.Event) -> None:
        if isinstance(event, ev.Alloc):
            self._alloc(event)
        elif isinstance(event, ev.Free):
            if event.expect in ("ok", "any"):
                self._live.pop(event.id, None)
        elif isinstance(event, ev.Kernel) and event.expect in ("ok", "any"):
            self._kernel(event)

    def _alloc(self, event: ev.Alloc) -> None:
        if event.expect not in ("ok", "any"):
            self._live.pop(event.id, None)
            return
        if event.size < 0:
            raise PlanError(f"line {event.line}: id {event.id!r} has a negative size")
        times = self._times[event.id] = self._times.get(event.id, 0) + 1
        number = len(self.ids)
        self._live[event.id] = number
        self.ids.append(event.id if times == 1 else f"{event.id}#{times}")
        self.sizes.append(-(-event.size // self._rounding) * self._rounding)
        self._asked.append(event.size)
        if event.tag in KEPT_TAGS:
            self.keep.add(number)

    def _kernel(self, event: ev.Kernel) -> None:
        step = len(self.steps)
        self.steps.append(Step(event.line, event.name))
        modes: dict[int, int] = {}
        written: dict[int, list[tuple[int, int]]] = {}
        for operand in event.reads:
            number = self._live.get(operand.id)
            if number is not None:
                modes[number] = READS
        for operand in event.writes:
            number = self._live.get(operand.id)
            if number is not None:
                size = self._asked[number]
                end = size if operand.bytes is None else operand.offset + operand.bytes
                written.setdefault(number, []).append((operand.offset, end))
        for number, ranges in written.items():
            # What is written in part keeps the rest, if there is anything in it yet.
            whole = number not in self._produced or _covers(ranges, self._asked[number])
            modes[number] = modes.get(number, 0) | (WRITES if whole else READS | WRITES)
        self._produced.update(modes)
        self.rows += [(number, step, mode) for number, mode in modes.items()]

    def finish(self) -> Migration:
        return Migration._made(self.ids, self.sizes, self.keep, self.steps, self.rows)


def _covers(ranges: list[tuple[int, int]], size: int) -> bool:
    reached = 0
    for start, end in sorted(ranges):
        if start > reached:
            return False
        reached = max(reached, end)
    return reached >= size


def read_migration(trace: Trace | Iterable[ev.Event], rounding: int = 1) -> Migration:
    """The migration problem of a trace.

    A step is a kernel that is not expected to fail, in program order. Sizes count as they are, or rounded up to
    multiples of ``rounding`` bytes, a page's, of which nothing less can move. An object is an
    allocation; an id that is used again after its free is another one. Those tagged ``keep`` or ``persistent`` are
    kept at the end. A write of a part of an object that holds something already also reads it.

    Raises
    ------
    PlanError
        A size below zero that was not expected to be refused.
    TraceError
        What reading the trace finds.
    """
    reading = _Reading(rounding)
    for event in trace:
        try:
            reading.take(event)
        except PlanError as error:
            if isinstance(trace, Trace):
                line = getattr(event, "line", 0)
                message = str(error).removeprefix(f"line {line}: ")
                raise TraceError(f"{trace.path}:{line}: {message}", line) from None
            raise
    return reading.finish()
