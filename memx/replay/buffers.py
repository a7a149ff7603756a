"""The buffers of a running replay, by the trace's ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import InvalidStateError, InvalidValueError
from ..trace import events as ev
from .contents import Contents

__all__ = ["Buffer", "Buffers", "Range", "Use"]

#: A stream's use of a buffer: its handle, and the thread where the handle is the thread's own.
Use = tuple[int, "ev.Id | None"]


class Buffer:
    """An allocation that succeeded."""

    __slots__ = ("address", "contents", "paused", "size", "tag", "uses")

    def __init__(self, address: int, size: int, tag: str | None) -> None:
        self.address = address
        self.size = size
        self.tag = tag
        self.contents = Contents()
        self.uses: set[Use] = set()
        self.paused = False


#: A part of a buffer: start and end within it.
Range = tuple[Buffer, int, int]


class Buffers:
    """Live buffers, and which ids never came to be."""

    def __init__(self) -> None:
        self._live: dict[ev.Id, Buffer] = {}
        self._failed: set[ev.Id] = set()
        self._freed: dict[ev.Id, int] = {}
        self._addresses: set[int] = set()
        self.live_bytes = 0

    def __iter__(self) -> Iterator[tuple[ev.Id, Buffer]]:
        return iter(self._live.items())

    def add(self, name: ev.Id, buffer: Buffer) -> None:
        """An allocation succeeded."""
        self._live[name] = buffer
        self._failed.discard(name)
        self._freed.pop(name, None)
        if buffer.size:
            self._addresses.add(buffer.address)
        self.live_bytes += buffer.size

    def add_failed(self, name: ev.Id) -> None:
        """An allocation failed: its id is skipped from here on."""
        self._failed.add(name)
        self._freed.pop(name, None)

    def is_live(self, name: ev.Id) -> bool:
        """Whether an id stands for memory now."""
        return name in self._live

    def has_failed(self, name: ev.Id) -> bool:
        """Whether an id's allocation failed."""
        return name in self._failed

    def find(self, name: ev.Id) -> Buffer | None:
        """A live buffer; None for an id whose allocation failed.

        Raises
        ------
        InvalidStateError
            It is neither.
        """
        buffer = self._live.get(name)
        if buffer is None and name not in self._failed:
            raise InvalidStateError(f"{name!r} is not allocated")
        return buffer

    def remove(self, name: ev.Id) -> None:
        """A live buffer was freed."""
        buffer = self._live.pop(name)
        self._addresses.discard(buffer.address)
        self._freed[name] = buffer.address
        self.live_bytes -= buffer.size

    def freed_address(self, name: ev.Id) -> int:
        """Where a freed buffer was, if asking the allocator to free it again can harm no other.

        Raises
        ------
        InvalidStateError
            There is no such address, or another buffer has it now.
        """
        address = self._freed.get(name)
        if not address or address in self._addresses:
            raise InvalidStateError(f"{name!r} is not allocated")
        return address

    def tagged(self, tag: str) -> Iterator[Buffer]:
        """Live buffers with a tag."""
        return (buffer for buffer in self._live.values() if buffer.tag == tag)

    def ranges(self, operands: Iterable[ev.Operand]) -> list[Range]:
        """The parts that a kernel names, less those that hold nothing or were never allocated.

        Raises
        ------
        InvalidStateError
            One is freed or paused.
        InvalidValueError
            One reaches beyond its buffer.
        """
        found: list[Range] = []
        live = self._live
        for operand in operands:
            buffer = live.get(operand.id)
            if buffer is None:
                self.find(operand.id)
                continue
            if buffer.paused:
                raise InvalidStateError(f"{operand.id!r} is paused")
            start = operand.offset
            end = buffer.size if operand.bytes is None else start + operand.bytes
            if start > buffer.size or end > buffer.size:
                raise InvalidValueError(f"bytes {start} to {end} of {operand.id!r} are beyond its {buffer.size} bytes")
            if start < end:
                found.append((buffer, start, end))
        return found
