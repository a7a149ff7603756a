"""Which work waits for which, shown with held streams: what is queued behind one cannot have been done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memx import sim

from .conftest import Streams
from .machine import LEGACY, NON_BLOCKING, PAGE, PER_THREAD, Kernels, Range, call, code, read
from .world import host_function

pytestmark = pytest.mark.usefixtures("clean")

KINDS = ["legacy", "per_thread", "blocking", "nonblocking"]


def make(streams: Streams, kind: str) -> Any:
    if kind == "legacy":
        return LEGACY
    if kind == "per_thread":
        return PER_THREAD
    return streams.blocking() if kind == "blocking" else streams.nonblocking()


def implicit(first: str, then: str) -> bool:
    """CUDA's rule: the legacy stream and blocking streams wait for each other, nothing else does."""
    return first != then and "legacy" in (first, then) and "nonblocking" not in (first, then)


def done(streams: Streams, stream: Any) -> Any:
    """Whether what is on the stream has run, as a question that does not wait."""
    event = streams.event()
    call("cuEventRecord", event, stream)

    def ask() -> bool:
        return code("cuEventQuery", event) == "SUCCESS"

    return ask


def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_each_pair_of_stream_kinds(first: str, then: str, streams: Streams, kernels: Kernels) -> None:
    if first == then and first in ("legacy", "per_thread"):
        pytest.skip("one stream")
    a, b = make(streams, first), make(streams, then)
    with Range((1,)) as r:
        sim.hold(a)
        kernels("memx_touch", a, r.va, 1, 0)
        kernels("memx_touch", b, r.va, 1, 0)
        later = done(streams, b)
        if implicit(first, then):
            assert not later()
            assert code("cuStreamQuery", a) == "NOT_READY"
            sim.release(a)
        eventually(later)
        sim.release(a)


def test_a_per_thread_stream_is_another_in_each_thread(streams: Streams, kernels: Kernels) -> None:
    context = call("cuCtxGetCurrent")
    ids = [int(call("cuStreamGetId", PER_THREAD))]

    def other() -> None:
        call("cuCtxSetCurrent", context)
        ids.append(int(call("cuStreamGetId", PER_THREAD)))
        kernels("memx_touch", PER_THREAD, r.va, 1, 0)
        eventually(done(streams, PER_THREAD))

    with Range((1,)) as r:
        sim.hold(PER_THREAD)
        kernels("memx_touch", PER_THREAD, r.va, 1, 0)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert code("cuStreamQuery", PER_THREAD) == "NOT_READY"
        sim.release(PER_THREAD)
    assert ids[0] != ids[1]
    assert int(call("cuStreamGetId", PER_THREAD)) == ids[0]


def test_an_event_wait_orders_streams(streams: Streams, kernels: Kernels) -> None:
    a, b = streams.nonblocking(), streams.nonblocking()
    with Range((1,)) as r:
        sim.hold(a)
        kernels("memx_stamp", a, r.va, PAGE, 1, 0)
        before = done(streams, b)
        streams.order(a, b)
        after = done(streams, b)
        eventually(before)
        assert not after()
        sim.release(a)
        eventually(after)


def test_an_event_stands_for_what_was_there_when_it_was_recorded(streams: Streams, kernels: Kernels) -> None:
    a, b = streams.nonblocking(), streams.nonblocking()
    event = streams.event()
    with Range((1,)) as r:
        call("cuEventRecord", event, a)
        call("cuStreamSynchronize", a)
        sim.hold(a)
        kernels("memx_touch", a, r.va, 1, 0)
        call("cuStreamWaitEvent", b, event, 0)
        eventually(done(streams, b))
        call("cuEventRecord", event, a)
        assert code("cuEventQuery", event) == "NOT_READY"
        call("cuEventSynchronize", event)
        assert code("cuStreamQuery", a) == "SUCCESS"


def test_an_event_never_recorded_is_complete(streams: Streams) -> None:
    event = streams.event()
    assert code("cuEventQuery", event) == "SUCCESS"
    call("cuEventSynchronize", event)
    call("cuStreamWaitEvent", streams.blocking(), event, 0)


def test_times_of_events(streams: Streams) -> None:
    a, b, untimed = streams.event(), streams.event(), streams.event(2)
    stream = streams.nonblocking()
    assert code("cuEventElapsedTime", a, b) == "INVALID_HANDLE"
    call("cuEventRecord", a, stream)
    sim.hold(stream)
    call("cuEventRecord", b, stream)
    call("cuEventRecord", untimed, stream)
    assert code("cuEventElapsedTime", a, b) == "NOT_READY"
    sim.release(stream)
    call("cuStreamSynchronize", stream)
    assert call("cuEventElapsedTime", a, b) >= 0
    assert code("cuEventElapsedTime", a, untimed) == "INVALID_HANDLE"


WAITS: dict[str, Callable[[Any, Any, int], Any]] = {
    "stream": lambda stream, _, __: call("cuStreamSynchronize", stream),
    "event": lambda _, event, __: call("cuEventSynchronize", event),
    "context": lambda *_: call("cuCtxSynchronize"),
    "copy": lambda _, __, va: read(va, 8),
    "free": lambda *_: call("cuMemFree", call("cuMemAlloc", 8)),
    "unpin": lambda *_: call("cuMemFreeHost", call("cuMemAllocHost", 8)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_host_wait_releases_what_it_depends_on(wait: str, streams: Streams, kernels: Kernels) -> None:
    """Held first, then another stream by an event, then the legacy one by implicit order."""
    held, middle = streams.nonblocking(), streams.blocking()
    with Range((1,)) as r:
        sim.hold(held)
        kernels("memx_touch", held, r.va, 1, 0)
        streams.order(held, middle)
        kernels("memx_touch", middle, r.va, 1, 0)
        kernels("memx_touch", 0, r.va, 1, 0)
        event = streams.event()
        call("cuEventRecord", event, 0)
        WAITS[wait](0, event, r.va)
        assert code("cuStreamQuery", held) == "SUCCESS"
        assert code("cuStreamQuery", 0) == "SUCCESS"


def test_a_wait_leaves_streams_held_that_it_does_not_depend_on(streams: Streams, kernels: Kernels) -> None:
    a, b = streams.nonblocking(), streams.nonblocking()
    with Range((1,)) as r:
        sim.hold(a)
        kernels("memx_touch", a, r.va, 1, 0)
        kernels("memx_touch", b, r.va, 1, 0)
        call("cuStreamSynchronize", b)
        assert code("cuStreamQuery", a) == "NOT_READY"
        sim.release(a)


def test_a_stream_held_while_somebody_waits_is_released(streams: Streams, kernels: Kernels) -> None:
    context = call("cuCtxGetCurrent")
    first, second = streams.nonblocking(), streams.nonblocking()
    entered, leave = threading.Event(), threading.Event()
    callback = host_function(lambda: (entered.set(), leave.wait()))
    with Range((1,)) as r:
        call("cuLaunchHostFunc", first, *callback)
        kernels("memx_touch", second, r.va, 1, 0)
        streams.order(first, second)
        kernels("memx_touch", second, r.va, 1, 0)
        entered.wait()

        def waiter() -> None:
            call("cuCtxSetCurrent", context)
            call("cuStreamSynchronize", second)

        thread = threading.Thread(target=waiter)
        thread.start()
        sim.hold(second)
        leave.set()
        thread.join()


def test_host_functions_run_in_their_streams_order(streams: Streams) -> None:
    a, b = streams.nonblocking(), streams.nonblocking()
    seen: list[int] = []
    sim.hold(a)
    call("cuLaunchHostFunc", a, *host_function(lambda: seen.append(1)))
    streams.order(a, b)
    call("cuLaunchHostFunc", b, *host_function(lambda: seen.append(2)))
    call("cuLaunchHostFunc", a, *host_function(lambda: seen.append(3)))
    assert seen == []
    call("cuStreamSynchronize", b)
    call("cuStreamSynchronize", a)
    assert sorted(seen) == [1, 2, 3]
    assert seen[0] == 1


def test_a_handle_is_used_again_by_another_stream(kernels: Kernels) -> None:
    first = call("cuStreamCreate", NON_BLOCKING)
    number, identity = int(first), int(call("cuStreamGetId", first))
    with Range((1,)) as r:
        sim.hold(first)
        kernels("memx_stamp", first, r.va, PAGE, 3, 0)
        call("cuStreamDestroy", first)
        assert code("cuStreamQuery", number) == "INVALID_HANDLE"
        assert code("cuStreamDestroy", number) == "INVALID_HANDLE"
        assert code("cuStreamGetId", number) == "INVALID_HANDLE"
        second = call("cuStreamCreate", 0)
        assert int(second) == number
        assert int(call("cuStreamGetId", second)) != identity
        assert int(call("cuStreamGetFlags", second)) == 0
        call("cuCtxSynchronize")
        call("cuStreamDestroy", second)


def test_stray_handles_are_refused(streams: Streams) -> None:
    assert code("cuStreamQuery", 0x1234560) == "INVALID_HANDLE"
    assert code("cuEventQuery", 0x1234560) == "INVALID_HANDLE"
    stream = streams.nonblocking()
    assert code("cuStreamQuery", int(stream) + 8) == "INVALID_HANDLE"
    event = call("cuEventCreate", 0)
    call("cuEventDestroy", event)
    assert code("cuEventRecord", int(event), stream) == "INVALID_HANDLE"


def test_a_context_event_stands_for_every_stream(streams: Streams, kernels: Kernels) -> None:
    context = call("cuCtxGetCurrent")
    a, b = streams.nonblocking(), streams.nonblocking()
    event = streams.event()
    with Range((1,)) as r:
        sim.hold(a)
        kernels("memx_touch", a, r.va, 1, 0)
        call("cuCtxRecordEvent", context, event)
        kernels("memx_touch", b, r.va, 1, 0)
        assert code("cuEventQuery", event) == "NOT_READY"
        call("cuEventSynchronize", event)
        assert code("cuStreamQuery", a) == "SUCCESS"


def test_a_context_wait_holds_back_every_stream(streams: Streams, kernels: Kernels) -> None:
    context = call("cuCtxGetCurrent")
    a, b = streams.nonblocking(), streams.nonblocking()
    event = streams.event()
    with Range((1,)) as r:
        sim.hold(a)
        kernels("memx_touch", a, r.va, 1, 0)
        call("cuEventRecord", event, a)
        call("cuCtxWaitEvent", context, event)
        later = [done(streams, b), done(streams, streams.nonblocking())]
        assert not any(ask() for ask in later)
        sim.release(a)
        for ask in later:
            eventually(ask)


@pytest.mark.parametrize("pinned", [True, False])
def test_copies_to_the_host_and_what_is_known_of_it(pinned: bool, streams: Streams, kernels: Kernels) -> None:
    """A copy to memory that the driver does not know waits; one to pinned memory does not."""
    stream = streams.nonblocking()
    target = np.zeros(16, np.uint8)
    at = int(call("cuMemAllocHost", 16)) if pinned else target.ctypes.data
    with Range((1,)) as r:
        sim.hold(stream)
        kernels("memx_fill", stream, r.va, 16, 5)
        call("cuMemcpyDtoHAsync", at, r.va, 16, stream)
        assert code("cuStreamQuery", stream) == ("NOT_READY" if pinned else "SUCCESS")
        sim.release(stream)
        call("cuStreamSynchronize", stream)
    if pinned:
        call("cuMemFreeHost", at)
    else:
        assert (target == 5).all()


def test_a_pageable_source_may_change_at_once(streams: Streams) -> None:
    stream = streams.nonblocking()
    source = np.full(16, 1, np.uint8)
    with Range((1,)) as r:
        sim.hold(stream)
        call("cuMemcpyHtoDAsync", r.va, source.ctypes.data, 16, stream)
        source[:] = 2
        call("cuStreamSynchronize", stream)
        assert (read(r.va, 16) == 1).all()
