"""Recording what a program asks of a memory resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING

from . import events as ev
from .reader import Header
from .streams import PER_THREAD, StreamNumbers
from .writer import write

if TYPE_CHECKING:
    from ..resource import MemoryResource

__all__ = ["Recorder"]

_NON_BLOCKING = 1

#: What the allocator core notes: operation, address, bytes, stream, and the tag's number or, of a wait, the
#: stream waited for.
Note = tuple[str, int, int, int, int, int]


class Recorder:
    """What happens at a memory resource while the ``with`` block runs.

    Parameters
    ----------
    resource : MemoryResource
    name : str
        For the trace's header.

    Attributes
    ----------
    events : list of events
        Complete after the block. Buffers that were allocated before it are not in it.

    Examples
    --------
    >>> with memx.trace.Recorder(mr) as recording:
    ...     step()
    >>> recording.save("step.jsonl.gz")
    """

    def __init__(self, resource: MemoryResource, name: str = "recorded") -> None:
        self._native = resource.native
        self._header = Header(name=name, page=self._native.page_bytes())
        self.events: list[ev.Event] = []

    def __enter__(self) -> Recorder:
        self._native.drain_events()
        self._native.record_events(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._native.record_events(False)
        self.events = translate(self._native.drain_events(), _stream_kind, self._native.tag_name)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trace; compressed by the suffix, ``.gz`` or ``.zst``."""
        write(path, self._header, self.events)


def _stream_kind(handle: int) -> str:
    if handle == PER_THREAD:
        return "per_thread"
    from cuda.bindings import driver

    code, flags = driver.cuStreamGetFlags(handle)
    return "nonblocking" if not code and int(flags) & _NON_BLOCKING else "blocking"


def translate(
    notes: Iterable[Note], kind_of: Callable[[int], str], tag_name: Callable[[int], str] = str
) -> list[ev.Event]:
    """Events of a trace from the allocator's notes.

    Addresses become ids, a new one for each allocation; stream handles become small numbers, declared before
    their first use; tags get their names back. What happens to a buffer from before the notes is left out.
    """
    out: list[ev.Event] = []
    names: dict[int, int] = {}
    streams = StreamNumbers()
    count = 0

    def numbered(handle: int) -> int:
        number, is_new = streams.take(handle)
        if is_new:
            out.append(ev.Stream(number, kind_of(handle)))
        return number

    for op, address, nbytes, handle, other, _time in notes:
        stream = numbered(handle)
        if op == "wait":
            on = numbered(other)
            out.append(ev.Wait(stream, on))
        elif op == "alloc":
            names[address] = count
            out.append(ev.Alloc(count, nbytes, stream, tag=tag_name(other) if other else None))
            count += 1
        elif op == "free" and address in names:
            out.append(ev.Free(names.pop(address), stream))
        elif op == "record_stream" and address in names:
            out.append(ev.RecordStream(names[address], stream))
    return out
