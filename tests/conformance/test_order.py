"""Which queued work waits for which.

A gate holds a stream, so that what is queued behind it has not begun; what has run by then did not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .api import DEVICE, DISABLE_TIMING, LEGACY, NON_BLOCKING, PER_THREAD, Gate, HostFunction, Range, call, code, read
from .conftest import Streams

KINDS = ["legacy", "per_thread", "blocking", "nonblocking"]
COUNT = 4096


def make(streams: Streams, kind: str) -> Any:
    special = {"legacy": LEGACY, "per_thread": PER_THREAD}
    return special[kind] if kind in special else getattr(streams, kind)()


def implicit(first: str, then: str) -> bool:
    """CUDA's rule: the legacy stream and blocking streams wait for each other, nothing else does."""
    return "legacy" in (first, then) and "nonblocking" not in (first, then)


@pytest.fixture
def memory(page: int) -> Iterator[int]:
    """Zeros that nothing queued uses."""
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemsetD8", r.va, 0, page)
        call("cuCtxSynchronize")
        yield r.va


class Flags:
    """Places in memory: work that sets one, and work that copies one to another."""

    def __init__(self, va: int) -> None:
        self._va = va

    def set(self, place: int, stream: Any) -> None:
        call("cuMemsetD8Async", self._va + place * COUNT, 1, COUNT, stream)

    def copy(self, to: int, place: int, stream: Any) -> None:
        call("cuMemcpyDtoDAsync", self._va + to * COUNT, self._va + place * COUNT, COUNT, stream)

    def seen(self, place: int) -> int:
        """0 or 1; once all is done."""
        call("cuCtxSynchronize")
        values = set(read(self._va + place * COUNT, COUNT).tolist())
        assert len(values) == 1, "half of it"
        return int(values.pop())


@pytest.fixture
def flags(memory: int) -> Flags:
    return Flags(memory)


def witness(streams: Streams, flags: Flags) -> None:
    """The device has done other work by now: what could run has had its time."""
    other = streams.nonblocking()
    for _ in range(3):
        flags.copy(14, 15, other)
        call("cuStreamSynchronize", other)


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_each_pair_of_stream_kinds(first: str, then: str, streams: Streams, flags: Flags) -> None:
    """cuStreamCreate: CU_STREAM_NON_BLOCKING takes a stream out of the order with stream 0, and only that."""
    if first == then and first in ("legacy", "per_thread"):
        pytest.skip("one stream")
    a, b = make(streams, first), make(streams, then)
    with Gate(a) as gate:
        flags.set(0, a)
        if implicit(first, then):
            flags.copy(1, 0, b)
            later = streams.recorded(b)
            witness(streams, flags)
            assert code("cuEventQuery", later) == "NOT_READY"
            gate.open()
            call("cuEventSynchronize", later)
            assert flags.seen(1) == 1
        else:
            flags.copy(1, 2, b)
            call("cuEventSynchronize", streams.recorded(b))
            assert code("cuStreamQuery", a) == "NOT_READY"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_runs_in_its_order(kind: str, streams: Streams, flags: Flags) -> None:
    """cuLaunchHostFunc: after the work queued before it, before the work queued after it."""
    stream = make(streams, kind)
    seen: list[int] = []
    functions = [HostFunction(lambda i=i: seen.append(i)) for i in range(5)]
    with Gate(stream):
        for function in functions[:3]:
            function.queue(stream)
        flags.set(0, stream)
        flags.copy(1, 0, stream)
        for function in functions[3:]:
            function.queue(stream)
        assert seen == []
    assert flags.seen(1) == 1
    assert seen == [0, 1, 2, 3, 4]


def test_stream_zero_waits_for_every_blocking_stream(streams: Streams, flags: Flags) -> None:
    """cuStreamCreate: stream 0 follows all blocking streams, and blocking streams follow it."""
    first, idle, outside = streams.blocking(), streams.blocking(), streams.nonblocking()
    with Gate(first) as gate:
        flags.set(0, first)
        flags.copy(1, 0, LEGACY)
        flags.copy(2, 1, idle)
        flags.copy(4, 3, outside)
        later = streams.recorded(idle)
        call("cuStreamSynchronize", outside)
        witness(streams, flags)
        assert code("cuEventQuery", later) == "NOT_READY"
        gate.open()
        assert flags.seen(2) == 1


def test_zero_is_the_legacy_stream(streams: Streams, flags: Flags) -> None:
    """cuStreamGetId: the null stream and CU_STREAM_LEGACY are one; the per-thread stream is another."""
    assert int(call("cuStreamGetId", 0)) == int(call("cuStreamGetId", LEGACY))
    assert int(call("cuStreamGetId", PER_THREAD)) != int(call("cuStreamGetId", LEGACY))
    with Gate(LEGACY):
        flags.set(0, 0)
        assert code("cuStreamQuery", 0) == "NOT_READY"
        assert code("cuStreamQuery", LEGACY) == "NOT_READY"


def test_a_per_thread_stream_is_another_in_each_thread(device: Any, streams: Streams, flags: Flags) -> None:
    """cuStreamGetId, CU_STREAM_PER_THREAD: each thread's own, which do not wait for each other."""
    ids = [int(call("cuStreamGetId", PER_THREAD))]
    with Gate(PER_THREAD):
        flags.set(0, PER_THREAD)

        def other() -> None:
            call("cuCtxSetCurrent", device.context)
            ids.append(int(call("cuStreamGetId", PER_THREAD)))
            flags.copy(1, 2, PER_THREAD)
            call("cuStreamSynchronize", PER_THREAD)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert code("cuStreamQuery", PER_THREAD) == "NOT_READY"
    assert len(set(ids)) == 2


def test_waiting_for_a_stream_is_not_waiting_for_others(streams: Streams, flags: Flags) -> None:
    """cuStreamSynchronize, cuStreamQuery: that stream's work alone."""
    a, b = streams.nonblocking(), streams.nonblocking()
    with Gate(a):
        flags.set(0, a)
        flags.set(1, b)
        call("cuStreamSynchronize", b)
        assert code("cuStreamQuery", b) == "SUCCESS"
        assert code("cuStreamQuery", a) == "NOT_READY"


@pytest.mark.parametrize(
    "kinds", [("nonblocking", "nonblocking"), ("nonblocking", "legacy"), ("blocking", "nonblocking")]
)
def test_an_event_orders_streams(kinds: tuple[str, str], streams: Streams, flags: Flags) -> None:
    """cuStreamWaitEvent: all future work of the stream waits for the work that the event captured."""
    a, b = (make(streams, kind) for kind in kinds)
    with Gate(a) as gate:
        flags.set(0, a)
        flags.copy(3, 2, b)
        before = streams.recorded(b)
        call("cuStreamWaitEvent", b, streams.recorded(a), 0)
        flags.copy(1, 0, b)
        after = streams.recorded(b)
        call("cuEventSynchronize", before)
        witness(streams, flags)
        assert code("cuEventQuery", after) == "NOT_READY"
        gate.open()
        assert flags.seen(1) == 1


def test_order_passes_through_streams(streams: Streams, flags: Flags) -> None:
    """cuStreamWaitEvent: what waited can be waited for, also where it queued no work in between."""
    a, b, c = (streams.nonblocking() for _ in range(3))
    with Gate(a) as gate:
        flags.set(0, a)
        streams.order(a, b)
        streams.order(b, c)
        flags.copy(1, 0, c)
        later = streams.recorded(c)
        witness(streams, flags)
        assert code("cuEventQuery", later) == "NOT_READY"
        gate.open()
        assert flags.seen(1) == 1


def test_an_event_stands_for_what_was_there_when_it_was_recorded(streams: Streams, flags: Flags) -> None:
    """cuEventRecord: later uses of the stream do not modify the event."""
    a, b = streams.nonblocking(), streams.nonblocking()
    flags.set(2, a)
    event = streams.recorded(a)
    with Gate(a):
        flags.set(0, a)
        call("cuStreamWaitEvent", b, event, 0)
        flags.copy(1, 2, b)
        call("cuStreamSynchronize", b)
        assert code("cuEventQuery", event) == "SUCCESS"
        assert code("cuStreamQuery", a) == "NOT_READY"
    assert flags.seen(1) == 1


def test_a_wait_uses_the_record_of_its_time(streams: Streams, flags: Flags) -> None:
    """cuEventRecord: a wait made before is not affected by recording again, a query is."""
    a, b = streams.nonblocking(), streams.nonblocking()
    event = streams.recorded(a)
    call("cuStreamWaitEvent", b, event, 0)
    with Gate(a) as gate:
        flags.set(0, a)
        call("cuEventRecord", event, a)
        flags.copy(1, 2, b)
        call("cuStreamSynchronize", b)
        assert code("cuEventQuery", event) == "NOT_READY"
        gate.open()
        call("cuEventSynchronize", event)
        assert code("cuStreamQuery", a) == "SUCCESS"


def test_a_wait_outlives_its_event(streams: Streams, flags: Flags) -> None:
    """cuEventDestroy: an event may go before it is complete; what waits for it still does."""
    a, b = streams.nonblocking(), streams.nonblocking()
    event = call("cuEventCreate", DISABLE_TIMING)
    with Gate(a) as gate:
        flags.set(0, a)
        call("cuEventRecord", event, a)
        call("cuStreamWaitEvent", b, event, 0)
        call("cuEventDestroy", event)
        flags.copy(1, 0, b)
        later = streams.recorded(b)
        witness(streams, flags)
        assert code("cuEventQuery", later) == "NOT_READY"
        gate.open()
        assert flags.seen(1) == 1


def test_a_stream_that_is_destroyed_finishes_its_work(streams: Streams, flags: Flags) -> None:
    """cuStreamDestroy: returns at once, and the stream's work completes."""
    a = call("cuStreamCreate", NON_BLOCKING)
    with Gate(a) as gate:
        flags.set(0, a)
        done = streams.recorded(a)
        call("cuStreamDestroy", a)
        witness(streams, flags)
        assert code("cuEventQuery", done) == "NOT_READY"
        gate.open()
        call("cuEventSynchronize", done)
        assert flags.seen(0) == 1


def test_ids_of_streams_are_never_used_again(streams: Streams) -> None:
    """cuStreamGetId: unique for the life of the program, while handles may come again."""
    ids = []
    for flag in (0, NON_BLOCKING) * 10:
        stream = call("cuStreamCreate", flag)
        ids.append(int(call("cuStreamGetId", stream)))
        assert int(call("cuStreamGetFlags", stream)) == flag
        call("cuStreamDestroy", stream)
    assert len(set(ids)) == len(ids)


WAITS: dict[str, Callable[[Any, Any], Any]] = {
    "cuStreamSynchronize": lambda stream, _: call("cuStreamSynchronize", stream),
    "cuEventSynchronize": lambda _, event: call("cuEventSynchronize", event),
    "cuCtxSynchronize": lambda *_: call("cuCtxSynchronize"),
}


@pytest.mark.parametrize("wait", WAITS)
def test_after_a_wait_the_work_is_done(wait: str, streams: Streams, flags: Flags, device: Any) -> None:
    """cuStreamSynchronize, cuEventSynchronize, cuCtxSynchronize: they return when the work is complete."""
    a = streams.nonblocking()
    ran = HostFunction(lambda: None)
    answers: list[tuple[bool, str]] = []
    entered = threading.Event()
    with Gate(a) as gate:
        flags.set(0, a)
        ran.queue(a)
        event = streams.recorded(a)

        def waiter() -> None:
            call("cuCtxSetCurrent", device.context)
            entered.set()
            WAITS[wait](a, event)
            answers.append((ran.ran.is_set(), code("cuStreamQuery", a)))

        thread = threading.Thread(target=waiter)
        thread.start()
        entered.wait()
        assert answers == []
        gate.open()
        thread.join()
    assert answers == [(True, "SUCCESS")]


def test_a_synchronous_copy_waits_for_blocking_streams(page: int, streams: Streams, flags: Flags, device: Any) -> None:
    """cuMemcpyDtoH: runs in stream 0, and returns when the bytes are there."""
    a = streams.blocking()
    got: list[int] = []
    entered = threading.Event()
    with Gate(a) as gate:
        flags.set(0, a)

        def reader() -> None:
            call("cuCtxSetCurrent", device.context)
            entered.set()
            got.append(int(read(flags._va, 1)[0]))

        thread = threading.Thread(target=reader)
        thread.start()
        entered.wait()
        witness(streams, flags)
        assert got == []
        gate.open()
        thread.join()
    assert got == [1]
