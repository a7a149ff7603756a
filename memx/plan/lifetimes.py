"""The layout problem of a memx trace: how long each buffer keeps its memory from every stream."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import TraceError
from ..trace import Trace
from ..trace import events as ev
from .buffers import Buffers

__all__ = ["TRACE_ALIGNMENT", "buffers_of", "trace_buffers"]

TRACE_ALIGNMENT = 512
"""Bytes to which offsets of trace buffers are aligned unless told otherwise: what frameworks rely on."""


def trace_buffers(trace: Trace, alignment: int = TRACE_ALIGNMENT) -> Buffers:
    """The buffers of a trace, in order of allocation; time counts its events.

    A buffer lives from its allocation to its free, and on until every stream that still allocates is ordered
    after all uses of it: on the free's stream, those it was recorded on and those of kernels that named it.
    ``wait`` and ``sync`` order streams; the legacy stream's implicit order is not counted on. One that is
    never freed lives to the end of the trace. Allocations that are expected to fail take up nothing.

    Parameters
    ----------
    trace : Trace
    alignment : int
        Bytes; an event's own ``align`` counts where it is more. Sizes stay as they are.

    Raises
    ------
    TraceError
        A size below zero that was not expected to be refused, and what reading the trace finds.
    """
    return buffers_of(_checked(trace), alignment, lambda line: f"{trace.path}:{line}")


def buffers_of(events: Iterable[ev.Event], alignment: int, place: Callable[[int], str]) -> Buffers:
    """As :func:`trace_buffers`, for events from anywhere; ``place`` says where an event's ``line`` is."""
    lifetimes = _Lifetimes()
    for moment, event in enumerate(events):
        lifetimes.take(moment, event)
    buffers = lifetimes.finish()
    return Buffers(
        [b.id for b in buffers],
        [b.lower for b in buffers],
        [b.upper for b in buffers],
        [b.size for b in buffers],
        alignment=[max(alignment, b.alignment) for b in buffers],
        tags=[b.tag for b in buffers],
        place=lambda i: place(buffers[i].line),
    )


def _checked(trace: Trace) -> Iterator[ev.Event]:
    for event in trace:
        if isinstance(event, ev.Alloc) and event.size < 0 and event.expect in ("ok", "any"):
            raise TraceError(f"{trace.path}:{event.line}: id {event.id!r} has a negative size", event.line)
        yield event


_Stream: TypeAlias = tuple[int, ev.Id]  # its number, and its thread where each thread has its own
_Clock: TypeAlias = dict[_Stream, int]  # how much of each stream's work is known to be over


@dataclass(slots=True)
class _Lifetime:
    id: ev.Id
    size: int
    alignment: int
    line: int
    stream: _Stream
    lower: int
    tag: str | None = None
    upper: int = -1
    uses: _Clock = field(default_factory=dict)
    recorded: set[_Stream] = field(default_factory=set)


class _Lifetimes:
    """Vector clocks over streams and host threads; only the order that the trace states counts."""

    def __init__(self) -> None:
        self._buffers: list[_Lifetime] = []
        self._live: dict[ev.Id, _Lifetime] = {}
        self._moment = 0
        self._thread: ev.Id = 0
        self._per_thread: set[int] = set()
        self._position: _Clock = {}
        self._known: dict[_Stream, _Clock] = {}
        self._host: dict[ev.Id, _Clock] = {}
        # For each stream that allocates: when, and what it knew then.
        self._allocations: dict[_Stream, tuple[list[int], list[_Clock]]] = {}

    def take(self, moment: int, event: ev.Event) -> None:
        self._moment = moment
        if isinstance(event, ev.Alloc):
            self._alloc(event)
        elif isinstance(event, ev.Free):
            self._free(event)
        elif isinstance(event, ev.Kernel):
            self._kernel(event)
        elif isinstance(event, ev.RecordStream):
            if event.id in self._live:
                self._live[event.id].recorded.add(self._stream(event.stream))
        elif isinstance(event, ev.Wait):
            stream, on = self._stream(event.stream), self._stream(event.on)
            _merge(self._reach(stream), self._done(on))
        elif isinstance(event, ev.Sync):
            host = self._host.setdefault(self._thread, {})
            streams = list(self._position) if event.stream is None else [self._stream(event.stream)]
            for stream in streams:
                _merge(host, self._done(stream))
        elif isinstance(event, ev.Stream):
            if event.kind == "per_thread":
                self._per_thread.add(event.stream)
        elif isinstance(event, ev.Thread):
            self._thread = event.thread

    def finish(self) -> list[_Lifetime]:
        end = self._moment + 1
        histories = {
            stream: (moments, {u: [known.get(u, 0) for known in clocks] for u in self._position})
            for stream, (moments, clocks) in self._allocations.items()
        }
        for buffer in self._buffers:
            if buffer.upper < 0:
                buffer.upper = end
                continue
            freed = buffer.upper
            for stream, (moments, known) in histories.items():
                for used, position in buffer.uses.items():
                    if used == stream:
                        continue
                    # The last allocation after the free that was not ordered after this use.
                    last = bisect_left(known[used], position) - 1
                    if last >= 0 and moments[last] > freed:
                        buffer.upper = max(buffer.upper, moments[last] + 1)
        return self._buffers

    def _alloc(self, event: ev.Alloc) -> None:
        if event.expect not in ("ok", "any"):
            return
        stream = self._stream(event.stream)
        moments, clocks = self._allocations.setdefault(stream, ([], []))
        moments.append(self._moment)
        clocks.append(dict(self._reach(stream)))
        buffer = _Lifetime(event.id, event.size, event.align, event.line, stream, self._moment, event.tag)
        self._buffers.append(buffer)
        self._live[event.id] = buffer

    def _free(self, event: ev.Free) -> None:
        buffer = self._live.pop(event.id, None)
        if buffer is None:
            return
        buffer.upper = self._moment
        last = buffer.stream if event.stream is None else self._stream(event.stream)
        self._work(last)
        for stream in {last, *buffer.recorded}:
            buffer.uses[stream] = self._position.get(stream, 0)
        # What the free's stream is ordered after needs no clock of its own.
        known = self._known[last]
        for stream in [s for s, position in buffer.uses.items() if s != last and known.get(s, 0) >= position]:
            del buffer.uses[stream]

    def _kernel(self, event: ev.Kernel) -> None:
        stream = self._stream(event.stream)
        self._work(stream)
        for operand in event.reads + event.writes:
            buffer = self._live.get(operand.id)
            if buffer is not None and stream != buffer.stream:
                buffer.uses[stream] = self._position[stream]

    def _stream(self, number: int) -> _Stream:
        return number, self._thread if number in self._per_thread else 0

    def _reach(self, stream: _Stream) -> _Clock:
        """What later work on a stream, queued from this thread, is ordered after."""
        known = self._known.setdefault(stream, {})
        self._position.setdefault(stream, 0)
        if host := self._host.get(self._thread):
            _merge(known, host)
        return known

    def _work(self, stream: _Stream) -> None:
        self._reach(stream)
        self._position[stream] += 1

    def _done(self, stream: _Stream) -> _Clock:
        return {**self._known.get(stream, {}), stream: self._position.get(stream, 0)}


def _merge(into: _Clock, more: _Clock) -> None:
    for stream, position in more.items():
        if into.get(stream, 0) < position:
            into[stream] = position
