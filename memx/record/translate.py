"""What a recorded process sent, as events of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..trace import events as ev
from ..trace.streams import PER_THREAD, StreamNumbers
from .protocol import Row

__all__ = ["Translator"]

_ALLOC, _FREE, _RECORD_STREAM, _WAIT, _OOM, _MARK = range(6)


class Translator:
    """The events of one device of one process.

    Ids are numbers, a new one for each allocation. Streams are numbered as they appear; PyTorch makes its own without
    the legacy stream's implicit order. An allocation that failed is one that is expected to, and what happens to memory
    from before the recording is left out.

    Attributes
    ----------
    live, peak_live, buffers, steps : int
        Bytes now and at most, and counts, of what was translated.
    """

    def __init__(self) -> None:
        self.live = self.peak_live = self.buffers = self.steps = 0
        self._names: dict[int, tuple[int, int]] = {}
        self._streams = StreamNumbers()
        self._count = 0

    def take(self, row: Row, details: dict[int, Any]) -> Iterator[ev.Event]:
        """The events of one row; ``details`` say what marks stand for."""
        kind, address, nbytes, handle, other, _time = row
        if kind == _ALLOC:
            yield from self._declare(handle)
            yield ev.Alloc(self._count, nbytes, self._number(handle))
            self._names[address] = (self._count, nbytes)
            self._count += 1
            self.buffers += 1
            self.live += nbytes
            self.peak_live = max(self.peak_live, self.live)
        elif kind == _FREE and address in self._names:
            yield from self._declare(handle)
            name, size = self._names.pop(address)
            self.live -= size
            yield ev.Free(name, self._number(handle))
        elif kind == _RECORD_STREAM and address in self._names:
            yield from self._declare(handle)
            yield ev.RecordStream(self._names[address][0], self._number(handle))
        elif kind == _WAIT:
            yield from self._wait(handle, other)
        elif kind == _OOM:
            yield from self._declare(handle)
            yield ev.Alloc(self._count, nbytes, self._number(handle), expect="any")
            yield ev.Free(self._count)
            self._count += 1
        elif kind == _MARK and other in details:
            yield from self._mark(details.pop(other))

    def _mark(self, what: list[Any]) -> Iterator[ev.Event]:
        if what[0] == "step":
            self.steps += 1
            yield ev.Step(what[1])
        elif what[0] == "wait":
            yield from self._wait(what[1], what[2])
        elif what[0] == "sync":
            if what[1] is None:
                yield ev.Sync()
            else:
                yield from self._declare(what[1])
                yield ev.Sync(self._number(what[1]))
        elif what[0] == "kernel":
            _, name, reads, writes, handle = what
            read, written = self._operands(reads), self._operands(writes)
            if read or written:
                yield from self._declare(handle)
                yield ev.Kernel(read, written, self._number(handle), name)

    def _operands(self, addresses: list[int]) -> tuple[ev.Operand, ...]:
        return tuple(ev.Operand(self._names[address][0]) for address in addresses if address in self._names)

    def _wait(self, handle: int, on: int) -> Iterator[ev.Event]:
        yield from self._declare(handle)
        yield from self._declare(on)
        if self._number(handle) != self._number(on):
            yield ev.Wait(self._number(handle), self._number(on))

    def _declare(self, handle: int) -> Iterator[ev.Event]:
        number, new = self._streams.take(handle)
        if new:
            yield ev.Stream(number, "per_thread" if handle == PER_THREAD else "nonblocking")

    def _number(self, handle: int) -> int:
        return self._streams.take(handle)[0]
