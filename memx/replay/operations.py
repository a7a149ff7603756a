"""What each event of a trace does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import sim
from ..errors import TraceError
from ..sizes import format_size
from ..trace import events as ev
from .buffers import Buffer, Buffers, Use
from .captures import Captures
from .contents import Seeds, count_differences
from .driver import PER_THREAD, STICKY, Driver
from .outcomes import EXPECTED_ERRORS, is_expected, outcome_of
from .results import Result

if TYPE_CHECKING:
    from .._native import Resource

__all__ = ["ContextLostError", "Operations"]

_READ, _WRITE = 1, 2


class ContextLostError(Exception):
    """A sticky driver error: nothing after it can work."""


class Operations:
    """A trace's events, done one by one on a device.

    Parameters
    ----------
    resource : Resource
        The allocator core.
    driver : Driver
    result : Result
        Takes failed expectations and mismatches.
    lazy : bool
        Make operands resident around each kernel.
    verify : bool
        Check what is read and stamp what is written, instead of only touching it.
    simulated : bool
    """

    def __init__(
        self, resource: Resource, driver: Driver, result: Result, *, lazy: bool, verify: bool, simulated: bool
    ) -> None:
        self.buffers = Buffers()
        self.thread: ev.Id = 0
        self.number = 0
        self.captures = Captures(driver)
        self._resource = resource
        self._driver = driver
        self._result = result
        self._lazy = lazy
        self._verify = verify
        self._simulated = simulated
        self._seeds = Seeds()
        self._streams: dict[int, int] = {0: 0}
        self._tags: dict[str, int] = {}
        self._faulty: set[str] = set()
        self._calls_before = self.driver_calls()
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.Alloc: self._alloc,
            ev.Free: self._free,
            ev.Kernel: self._kernel,
            ev.RecordStream: self._guarded(self._record_stream),
            ev.Wait: self._guarded(self._wait),
            ev.Sync: self._guarded(self._sync),
            ev.Hold: self._guarded(self._hold),
            ev.Release: self._guarded(self._release),
            ev.Stream: self._guarded(self._declare),
            ev.Trim: self._guarded(lambda _event: resource.trim(0)),
            ev.ResetPeak: self._guarded(self._reset_peak),
            ev.Rebalance: self._guarded(lambda _event: resource.rebalance()),
            ev.Pause: self._guarded(self._pause),
            ev.Resume: self._guarded(self._resume),
            ev.Capture: self._guarded(self._capture),
            ev.Fail: self._fail,
            ev.Check: self._check,
            ev.CheckContents: self._guarded(self._check_contents),
            ev.Step: self._step,
        }

    def driver_calls(self) -> dict[str, int]:
        """The allocator's calls so far, by function."""
        return dict(self._resource.statistics()["driver_calls"])

    def note_peaks(self) -> None:
        """Take the peaks since the last reset into the result's."""
        result, statistics = self._result, self._resource.statistics()
        for name in ("reserved", "allocated", "host"):
            field = f"peak_{name}_bytes"
            setattr(result, field, max(getattr(result, field), statistics[f"{name}_bytes.peak"]))

    def cancel_faults(self) -> None:
        """Take back the faults that the trace injects."""
        for call in self._faulty:
            sim.fail(call)
        self._faulty.clear()

    def free_all(self) -> None:
        """Free what the trace left."""
        for name, _buffer in list(self.buffers):
            self._free(ev.Free(name))

    def failed(self, event: ev.Event, message: str) -> None:
        """Note an expectation that was not met."""
        where = f"line {event.line}: " if event.line else f"event {self.number}: "
        self._result.add_failure(self.number, where + message)

    # -- allocations -------------------------------------------------------------------------------------

    def _alloc(self, event: ev.Alloc) -> None:
        if self.buffers.is_live(event.id):
            raise TraceError(f"line {event.line}: id {event.id!r} is still allocated", event.line)
        try:
            tag = 0 if event.tag is None else self._tag(event.tag)
            placement = "prefer_device" if event.host_ok else "device"
            address = self._resource.allocate(event.size, self._stream(event.stream), event.align, placement, tag)
        except EXPECTED_ERRORS as error:
            self.buffers.add_failed(event.id)
            self._settle(event, event.expect, error, f"alloc {event.id!r} of {_size(event.size)}")
        else:
            self.buffers.add(event.id, Buffer(address, event.size, event.tag))
            if event.expect != "ok":
                self._settle(event, event.expect, None, f"alloc {event.id!r} of {_size(event.size)}")

    def _free(self, event: ev.Free) -> None:
        stream = None if event.stream is None else self._stream(event.stream)
        error: BaseException | None = None
        try:
            if self.buffers.is_live(event.id):
                buffer = self.buffers.find(event.id)
                if buffer is not None and buffer.size:
                    self._resource.free(buffer.address, stream)
                self.buffers.remove(event.id)
            elif self.buffers.has_failed(event.id):
                return
            else:
                self._resource.free(self.buffers.freed_address(event.id), stream)
        except EXPECTED_ERRORS as caught:
            error = caught
        self._settle(event, event.expect, error, f"free {event.id!r}")

    def _kernel(self, event: ev.Kernel) -> None:
        number = self._stream(event.stream)
        token = None
        try:
            reads = self.buffers.ranges(event.reads)
            writes = self.buffers.ranges(event.writes)
            if self._lazy and (reads or writes):
                operands = [(b.address, start, end - start, _READ) for b, start, end in reads]
                operands += [(b.address, start, end - start, _WRITE) for b, start, end in writes]
                token = self._resource.begin_use(operands, number)
            try:
                self._queue(reads, writes, number)
            finally:
                if token is not None:
                    self._resource.end_use(token)
        except EXPECTED_ERRORS as error:
            self._settle(event, event.expect, error, f"kernel {event.name or ''}".rstrip())
        else:
            if event.expect != "ok":
                self._settle(event, event.expect, None, f"kernel {event.name or ''}".rstrip())

    def _queue(self, reads: list[tuple[Buffer, int, int]], writes: list[tuple[Buffer, int, int]], stream: int) -> None:
        driver = self._driver
        use: Use = (stream, self.thread if stream == PER_THREAD else None)
        if not self._verify:
            for buffer, start, end in reads:
                driver.touch(buffer.address + start, end - start, False, stream)
                buffer.uses.add(use)
            for buffer, start, end in writes:
                driver.touch(buffer.address + start, end - start, True, stream)
                buffer.uses.add(use)
            return
        captured = self.captures.covers(stream)
        for buffer, start, end in reads:
            buffer.uses.add(use)
            for first, last, seed in buffer.contents.within(start, end):
                driver.verify(buffer.address + first, last - first, seed, first, stream)
        for buffer, start, end in writes:
            buffer.uses.add(use)
            seed = self._seeds.next()
            if captured:
                self.captures.note_write(buffer)
            driver.stamp(buffer.address + start, end - start, seed, start, stream)
            buffer.contents.write(start, end, seed)

    # -- streams -----------------------------------------------------------------------------------------

    def _stream(self, number: int) -> int:
        handle = self._streams.get(number)
        if handle is None:
            handle = self._streams[number] = self._driver.create_stream(blocking=True)
        return handle

    def _declare(self, event: ev.Stream) -> None:
        if event.stream in self._streams:
            raise TraceError(f"line {event.line}: stream {event.stream} was used already", event.line)
        if event.kind == "per_thread":
            self._streams[event.stream] = PER_THREAD
        else:
            self._streams[event.stream] = self._driver.create_stream(event.kind == "blocking")

    def _record_stream(self, event: ev.RecordStream) -> None:
        buffer = self.buffers.find(event.id)
        if buffer is not None and buffer.size:
            self._resource.record_stream(buffer.address, self._stream(event.stream))

    def _wait(self, event: ev.Wait) -> None:
        stream, on = self._stream(event.stream), self._stream(event.on)
        self._driver.wait(stream, on)
        self._resource.note_wait(stream, on)

    def _sync(self, event: ev.Sync) -> None:
        self._driver.synchronize(None if event.stream is None else self._stream(event.stream))

    def _hold(self, event: ev.Hold) -> None:
        if self._simulated:
            sim.hold(self._stream(event.stream))

    def _release(self, event: ev.Release) -> None:
        if self._simulated:
            sim.release(self._stream(event.stream))

    def _capture(self, event: ev.Capture) -> None:
        if event.action == "begin":
            self.captures.begin(event.stream, self._stream(event.stream))
        elif event.action == "end":
            self.captures.end(event.stream)
        elif event.action == "abort":
            self.captures.abort(event.stream)
        else:
            self.captures.release(event.stream)

    # -- tags --------------------------------------------------------------------------------------------

    def _tag(self, name: str) -> int:
        number = self._tags.get(name)
        if number is None:
            number = self._tags[name] = self._resource.tag_id(name)
        return number

    def _pause(self, event: ev.Pause) -> None:
        self._resource.pause(self._tag(event.tag), event.keep)
        for buffer in self.buffers.tagged(event.tag):
            buffer.paused = True
            if not event.keep:
                buffer.contents.forget()

    def _resume(self, event: ev.Resume) -> None:
        self._resource.resume(self._tag(event.tag))
        for buffer in self.buffers.tagged(event.tag):
            buffer.paused = False

    def _reset_peak(self, event: ev.ResetPeak) -> None:  # noqa: ARG002
        self.note_peaks()
        self._resource.reset_peak_statistics()

    # -- faults and checks -------------------------------------------------------------------------------

    def _fail(self, event: ev.Fail) -> None:
        if not self._simulated:
            raise TraceError(f"line {event.line}: faults need the simulated device", event.line)
        self._faulty.add(event.call)
        sim.fail(event.call, at=event.at, every=event.every, probability=event.probability, code=event.code)

    def _check(self, event: ev.Check) -> None:
        kind, _, function = event.stat.partition("driver_calls.")
        if function and not kind:
            value = self.driver_calls().get(function, 0) - self._calls_before.get(function, 0)
        else:
            found = self._resource.statistics().get(event.stat)
            if not isinstance(found, int):
                raise TraceError(f"line {event.line}: there is no statistic {event.stat!r}", event.line)
            value = found
        if event.equals is not None and value != event.equals:
            self.failed(event, f"{event.stat} is {value}, not {event.equals}")
        elif event.max is not None and value > event.max:
            self.failed(event, f"{event.stat} is {value}, more than {event.max}")
        elif event.min is not None and value < event.min:
            self.failed(event, f"{event.stat} is {value}, less than {event.min}")

    def _check_contents(self, event: ev.CheckContents) -> None:
        buffer = self.buffers.find(event.id)
        if buffer is None or not buffer.contents.spans:
            return
        for stream, thread in buffer.uses:
            # Another thread's own stream has no name here: only the context as a whole waits for it.
            self._driver.synchronize(stream if thread in (None, self.thread) else None)
        address = buffer.address

        def read(offset: int, into: np.ndarray[Any, Any]) -> None:
            self._resource.read(address, offset, into)

        differences = count_differences(buffer.contents, read)
        if differences:
            self._result.mismatches += differences
            self.failed(event, f"{differences} bytes of {event.id!r} are not what was written")

    def _step(self, event: ev.Step) -> None:  # noqa: ARG002
        self._resource.begin_step()
        statistics = self._resource.statistics()
        moved = statistics["migrated_in_bytes"] + statistics["migrated_out_bytes"]
        self._result.moved_at_steps.append(moved)
        self._calls_before = self.driver_calls()

    # -- outcomes ----------------------------------------------------------------------------------------

    def _guarded(self, handler: Callable[[Any], Any]) -> Callable[[Any], None]:
        """An operation that a trace cannot expect to fail."""

        def guarded(event: ev.Event) -> None:
            try:
                handler(event)
            except EXPECTED_ERRORS as error:
                self._settle(event, "ok", error, event.op)

        return guarded

    def _settle(self, event: ev.Event, expect: str, error: BaseException | None, what: str) -> None:
        outcome = "ok" if error is None else outcome_of(error)
        if not is_expected(expect, outcome):
            reason = "" if error is None else f": {_first_line(error)}"
            got = f"ended as {outcome}" if expect == "ok" else f"ended as {outcome}, not as {expect}"
            self.failed(event, f"{what} {got}{reason}")
        if getattr(error, "code", 0) in STICKY:
            raise ContextLostError from error


def _size(nbytes: int) -> str:
    return format_size(nbytes) if 0 <= nbytes < 1 << 50 else f"{nbytes} bytes"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
