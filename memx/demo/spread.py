"""A single-stream trace spread over several streams, as a framework with concurrent queues would run it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..trace import events as ev

__all__ = ["spread"]


def spread(events: Iterable[ev.Event], streams: int) -> Iterator[ev.Event]:
    """Run kernel n on stream n mod ``streams``, with a wait wherever it depends on another stream.

    Allocations come from the stream of the next kernel, which is the one that writes them in a recorded
    program. A buffer used on further streams is recorded there. Streams are numbered from 1 and do not wait
    for the legacy stream.

    Parameters
    ----------
    events : iterable of events
        Of a trace that uses stream 0 alone.
    streams : int
    """
    for number in range(1, streams + 1):
        yield ev.Stream(number, "nonblocking")
    home: dict[ev.Id, int] = {}
    recorded: dict[ev.Id, set[int]] = {}
    writer: dict[ev.Id, int] = {}
    readers: dict[ev.Id, set[int]] = {}
    kernels = 0
    for event in events:
        stream = 1 + kernels % streams
        if isinstance(event, ev.Alloc):
            home[event.id] = stream
            recorded[event.id] = {stream}
            readers[event.id] = set()
            yield ev.Alloc(event.id, event.size, stream, event.align, event.tag, event.host_ok)
        elif isinstance(event, ev.Free):
            for table in (home, recorded, readers, writer):
                table.pop(event.id, None)
            yield event
        elif isinstance(event, ev.Kernel):
            read = {operand.id for operand in event.reads}
            written = {operand.id for operand in event.writes}
            before = {writer[name] for name in read | written if name in writer}
            before.update(*(readers[name] for name in written))
            # The first use away from a buffer's own stream follows that stream, whose memory it was.
            before.update(home[name] for name in read | written if stream not in recorded[name])
            for on in sorted(before - {stream}):
                yield ev.Wait(stream, on)
            for name in sorted(read | written, key=str):
                if stream not in recorded[name]:
                    recorded[name].add(stream)
                    yield ev.RecordStream(name, stream)
            yield ev.Kernel(event.reads, event.writes, stream, event.name)
            for name in written:
                writer[name] = stream
                readers[name].clear()
            for name in read - written:
                readers[name].add(stream)
            kernels += 1
        else:
            yield event
