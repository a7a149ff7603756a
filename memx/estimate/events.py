"""An estimated program's allocations and operations as a trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ..trace import events as ev
from ..trace.streams import StreamNumbers
from .history import Allocation, History
from .raw import Operation, Raw

__all__ = ["events_of"]

#: Operations that use the workspace of their thread's cuBLAS, which is no operand.
_WITH_CUBLAS = re.compile(r"_?(addmm|mm|bmm|baddbmm|addbmm|mv|addmv|conv|slow_conv|scaled_mm|int_mm)")


def events_of(raw: Raw, history: History) -> Iterator[ev.Event]:
    """A trace of the allocations, with the steps and, if they are known, the operations."""
    return _Telling(raw, history).run()


class _Telling:
    def __init__(self, raw: Raw, history: History) -> None:
        self._raw = raw
        self._history = history
        self._streams = StreamNumbers()
        self._live: dict[int, int] = {}
        self._operations = iter(zip(raw.places, raw.operations, strict=False))
        self._upcoming = next(self._operations, None)
        self._first_part: dict[int, Operation] = {}
        for one in raw.operations:
            self._first_part.setdefault(one[0], one)
        self._inside = {died: number for number, _, died in raw.inside}
        # A workspace is its maker's thread's; the operations of one stream there share it.
        self._workspaces: dict[tuple[int, int], list[int]] = defaultdict(list)
        last = raw.step_operations or [0] * len(history.steps)
        self._steps = list(zip(history.steps, last, strict=False))
        self._told = 0

    def run(self) -> Iterator[ev.Event]:
        births = {one.born: one for one in self._history.allocations}
        deaths = {one.died: one for one in self._history.allocations if one.died < self._history.events}
        for number in range(self._history.events + 1):
            while self._upcoming is not None and self._upcoming[0] <= number:
                operation = self._upcoming[1]
                yield from self._ended(number, before=operation[0])
                yield from self._kernel(operation)
                self._upcoming = next(self._operations, None)
            yield from self._ended(number)
            if number in births:
                yield from self._alloc(births[number], number)
            elif number in deaths:
                yield from self._free(deaths[number], number)

    def _ended(self, number: int, before: int | None = None) -> Iterator[ev.Event]:
        """The steps that ended before an event and, of those, before an operation."""
        while self._told < len(self._steps):
            place, last = self._steps[self._told]
            if place > number or (before is not None and last >= before):
                return
            self._told += 1
            yield ev.Step(f"step {self._told}")

    def _alloc(self, one: Allocation, number: int) -> Iterator[ev.Event]:
        yield from self._declared(one.stream)
        yield ev.Alloc(one.born, one.bytes, self._streams.take(one.stream)[0], tag=None)
        self._live[one.address] = one.born
        if one.category == "workspaces" and self._raw.makers:
            maker = self._first_part.get(self._raw.makers[number])
            self._workspaces[maker[5] if maker else 0, one.stream].append(one.address)

    def _free(self, one: Allocation, number: int) -> Iterator[ev.Event]:
        user = self._first_part.get(self._inside.get(number, 0))
        if user is not None:
            yield from self._kernel(user, one.address)
        del self._live[one.address]
        yield ev.Free(one.born)

    def _kernel(self, operation: Operation, *more: int) -> Iterator[ev.Event]:
        _, name, reads, writes, stream, thread = operation
        if _WITH_CUBLAS.match(name):
            more += tuple(self._workspaces.get((thread, stream), ()))
        read, written = self._operands(reads), self._operands([*writes, *more])
        if read or written:
            yield from self._declared(stream)
            yield ev.Kernel(read, written, self._streams.take(stream)[0], name)

    def _operands(self, addresses: list[int]) -> tuple[ev.Operand, ...]:
        return tuple(ev.Operand(self._live[address]) for address in addresses if address in self._live)

    def _declared(self, handle: int) -> Iterator[ev.Event]:
        number, new = self._streams.take(handle)
        if new:
            yield ev.Stream(number, "nonblocking")
