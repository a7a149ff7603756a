"""What a correct program must do: the rules that a random trace keeps, checked event by event.

A use of a buffer must come after its allocation and after every conflicting use, by something the program did: the
same stream, a `wait`, a host `sync`, or the legacy stream's implicit order where an action in that stream carries it.
A free must come after all uses on the allocation's stream or on the stream it names, but for those on recorded
streams. Nothing that a capture forbids happens while one is open.

Positions in a stream are numbered ("marks"); a clock says up to which mark of each stream something follows. An event
that may fail (`expect` is not "ok") is taken to have happened where that asks for more order, and not to have
happened where it would give some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from memx.trace import events as ev

__all__ = ["Buffer", "Key", "Program", "RuleError", "Use", "check"]

#: A stream: its number, and the thread whose own it is where that matters.
Key = tuple[int, "ev.Id | None"]
Clock = dict[Key, int]

LEGACY: Key = (0, None)
HUGE = 1 << 50


class RuleError(Exception):
    """The program is not correct from here on."""


def join(into: Clock, other: Clock) -> None:
    for key, mark in other.items():
        if into.get(key, 0) < mark:
            into[key] = mark


@dataclass(slots=True)
class Use:
    """A kernel's access to bytes ``start`` to ``end``."""

    key: Key
    mark: int
    write: bool
    start: int
    end: int


@dataclass(slots=True)
class Buffer:
    """A buffer that is live, if its allocation succeeded (``certain``: it must)."""

    id: ev.Id
    size: int
    key: Key
    mark: int
    tag: str | None
    certain: bool
    host_ok: bool
    paused: bool = False
    uses: list[Use] = field(default_factory=list)
    recorded: set[Key] = field(default_factory=set)


class Program:
    """A program so far.

    Attributes
    ----------
    kinds : dict
        Streams by number.
    thread : int or str
    buffers : dict
        Live ones by id.
    capture : int or None
        Number of the stream being captured.
    """

    def __init__(self) -> None:
        self.kinds: dict[int, str] = {0: "legacy"}
        self.thread: ev.Id = 0
        self.buffers: dict[ev.Id, Buffer] = {}
        self.capture: int | None = None
        self._capture_thread: ev.Id = 0
        self._clocks: dict[Key, Clock] = {LEGACY: {}}
        self._marks: dict[Key, int] = {LEGACY: 0}
        self._legacy: Clock = {}  # what work on blocking streams follows
        self._host: Clock = {}
        self._gone: set[ev.Id] = set()

    # -- questions -----------------------------------------------------------------------------------------

    def key(self, stream: int) -> Key:
        """The stream that a number means in the current thread."""
        return (stream, self.thread) if self.kinds[stream] == "per_thread" else (stream, None)

    def is_named(self, key: Key) -> bool:
        """Whether the current thread can name a stream."""
        return key[1] in (None, self.thread)

    def unordered(self, buffer: Buffer, start: int, end: int, write: bool, key: Key) -> set[Key]:
        """Streams that a use must be ordered after and is not."""
        clock = self._now(key)
        found = set()
        if buffer.key != key and clock.get(buffer.key, 0) < buffer.mark:
            found.add(buffer.key)
        for use in buffer.uses:
            conflict = (write or use.write) and use.start < end and start < use.end
            if conflict and use.key != key and clock.get(use.key, 0) < use.mark:
                found.add(use.key)
        return found

    def uncovered(self, buffer: Buffer, key: Key) -> set[Key]:
        """Streams of uses that a free on ``key`` says nothing of."""
        known = dict(self._host)
        join(known, self._clocks.get(key, {}))
        join(known, self._clocks.get(buffer.key, {}))
        ordered = {key, buffer.key, *buffer.recorded}
        return {u.key for u in buffer.uses if u.key not in ordered and known.get(u.key, 0) < u.mark}

    def is_forbidden(self, stream: int) -> bool:
        """Whether a capture in progress forbids work on a stream, or waits between it and others."""
        if self.capture is None:
            return False
        return self.key(stream) == self._capture_key() or (stream == 0 and self.kinds[self.capture] != "nonblocking")

    # -- events --------------------------------------------------------------------------------------------

    def apply(self, event: ev.Event) -> None:
        """Take the next event.

        Raises
        ------
        RuleError
            A correct program would not do it.
        """
        handler = getattr(self, "_" + type(event).__name__.lower(), None)
        if handler is not None:
            handler(event)

    def _alloc(self, event: ev.Alloc) -> None:
        self._require(event.id not in self.buffers, "the id is in use")
        self._known(event.stream)
        if self.capture is not None:
            self._require(not self._legacy_in_capture(event.stream), "the legacy stream in a capture")
        if not 0 <= event.size < HUGE:
            return
        key = self.key(event.stream)
        self._gone.discard(event.id)
        self.buffers[event.id] = Buffer(
            event.id, event.size, key, self._mark(key), event.tag, event.expect == "ok", event.host_ok
        )

    def _free(self, event: ev.Free) -> None:
        buffer = self.buffers.get(event.id)
        if buffer is None:
            self._require(event.expect != "ok" and event.id in self._gone, "it is not allocated")
            return
        self._require(event.expect == "ok", "a first free is right")
        if event.stream is not None:
            self._known(event.stream)
        key = buffer.key if event.stream is None else self.key(event.stream)
        self._require(not self.uncovered(buffer, key), "a use is neither ordered nor recorded")
        del self.buffers[event.id]
        self._gone.add(event.id)

    def _kernel(self, event: ev.Kernel) -> None:
        self._known(event.stream)
        capturing = self.capture is not None and self.key(event.stream) == self._capture_key()
        if not capturing:
            self._require(not self.is_forbidden(event.stream), "forbidden in a capture")
        key = self.key(event.stream)
        parts = []
        for operands, write in ((event.reads, False), (event.writes, True)):
            for operand in operands:
                buffer = self.buffers.get(operand.id)
                self._require(buffer is not None, "an operand is not allocated")
                assert buffer is not None
                start = operand.offset
                end = buffer.size if operand.bytes is None else start + operand.bytes
                self._require(0 <= start <= end <= buffer.size, "outside the buffer")
                self._require(not buffer.paused, "an operand is paused")
                self._require(not self.unordered(buffer, start, end, write, key), "a use is not ordered")
                parts.append((buffer, start, end, write))
        sure = event.expect == "ok" and any(b.certain and w and s < e for b, s, e, w in parts)
        if sure and not capturing:
            self._act(key)
        mark = self._mark(key)
        if sure and key == LEGACY:
            self._publish()
        for buffer, start, end, write in parts:
            buffer.uses = [
                use
                for use in buffer.uses
                if not (use.key == key and use.write == write and start <= use.start and use.end <= end)
            ]
            buffer.uses.append(Use(key, mark, write, start, end))

    def _recordstream(self, event: ev.RecordStream) -> None:
        self._known(event.stream)
        self._require(event.id in self.buffers, "it is not allocated")
        self.buffers[event.id].recorded.add(self.key(event.stream))

    def _wait(self, event: ev.Wait) -> None:
        for stream in (event.stream, event.on):
            self._known(stream)
            self._require(not self.is_forbidden(stream), "forbidden in a capture")
        key, on = self.key(event.stream), self.key(event.on)
        self._act(on)
        if on == LEGACY:
            self._publish()
        self._act(key)
        clock = self._clocks[key]
        join(clock, self._clocks[on])
        clock[on] = self._marks[on]
        if key == LEGACY:
            self._publish()

    def _sync(self, event: ev.Sync) -> None:
        self._require(self.capture is None, "a host wait in a capture")
        if event.stream is None:
            for key, mark in self._marks.items():
                join(self._host, self._now(key))
                self._host[key] = mark
            return
        self._known(event.stream)
        key = self.key(event.stream)
        join(self._host, self._clocks[key])
        self._host[key] = self._marks[key]

    def _hold(self, event: ev.Hold) -> None:
        self._known(event.stream)
        self._require(not self.is_forbidden(event.stream), "forbidden in a capture")

    _release = _hold

    def _stream(self, event: ev.Stream) -> None:
        self._require(event.stream not in self.kinds, "declared twice")
        self.kinds[event.stream] = event.kind

    def _thread(self, event: ev.Thread) -> None:
        self.thread = event.thread

    def _trim(self, event: ev.Trim | ev.Rebalance) -> None:  # noqa: ARG002
        self._require(self.capture is None, "memory does not move in a capture")

    _rebalance = _trim

    def _pause(self, event: ev.Pause) -> None:
        self._require(self.capture is None, "memory does not move in a capture")
        for buffer in self.buffers.values():
            if buffer.tag == event.tag:
                buffer.paused = True

    def _resume(self, event: ev.Resume) -> None:
        self._require(self.capture is None, "memory does not move in a capture")
        for buffer in self.buffers.values():
            if buffer.tag == event.tag:
                buffer.paused = False

    def _capture(self, event: ev.Capture) -> None:
        self._known(event.stream)
        if event.action == "begin":
            self._require(self.capture is None and event.stream != 0, "no capture here")
            self.capture, self._capture_thread = event.stream, self.thread
        elif event.action != "release":
            self._require(self.capture == event.stream and self.thread == self._capture_thread, "not being captured")
            self.capture = None

    def _checkcontents(self, event: ev.CheckContents) -> None:
        self._require(event.id in self.buffers, "it is not allocated")
        self._require(self.capture is None, "a host wait in a capture")

    # -- clocks --------------------------------------------------------------------------------------------

    def _now(self, key: Key) -> Clock:
        """What work queued on a stream now follows."""
        clock = dict(self._clocks.get(key, {}))
        join(clock, self._host)
        if key == LEGACY:
            for other, known in self._clocks.items():
                if self._blocking(other):
                    join(clock, known)
                    clock[other] = max(clock.get(other, 0), self._marks[other])
        elif self._blocking(key):
            join(clock, self._legacy)
        return clock

    def _act(self, key: Key) -> None:
        """Something is queued on a stream: the implicit order so far holds for all that follows there."""
        self._clocks[key] = self._now(key)

    def _publish(self) -> None:
        self._legacy = dict(self._clocks[LEGACY])
        self._legacy[LEGACY] = self._marks[LEGACY]

    def _mark(self, key: Key) -> int:
        self._clocks.setdefault(key, {})
        self._marks[key] = self._marks.get(key, 0) + 1
        return self._marks[key]

    def _blocking(self, key: Key) -> bool:
        return self.kinds[key[0]] in ("blocking", "per_thread")

    def _capture_key(self) -> Key:
        assert self.capture is not None
        if self.kinds[self.capture] == "per_thread":
            return (self.capture, self._capture_thread)
        return (self.capture, None)

    def _legacy_in_capture(self, stream: int) -> bool:
        return stream == 0 and self.capture is not None and self.kinds[self.capture] != "nonblocking"

    def _known(self, stream: int) -> None:
        self._require(stream in self.kinds, "the stream is not declared")
        key = self.key(stream)
        self._clocks.setdefault(key, {})
        self._marks.setdefault(key, 0)

    @staticmethod
    def _require(condition: object, why: str) -> None:
        if not condition:
            raise RuleError(why)


def check(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The events; raises :class:`RuleError` at the first that a correct program would not do."""
    program = Program()
    for event in events:
        program.apply(event)
        yield event
