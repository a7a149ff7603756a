"""What a stream's capture allows, and what it does to calls elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver

from .api import (
    DEVICE,
    DISABLE_TIMING,
    LEGACY,
    NON_BLOCKING,
    PER_THREAD,
    Gate,
    Kernels,
    Range,
    access,
    call,
    code,
    pattern,
    properties,
    read,
)
from .conftest import Streams

GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
THREAD_LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
ACTIVE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
INVALIDATED = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED
NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


def status(stream: Any) -> Any:
    return call("cuStreamIsCapturing", stream)


_begun: list[Any] = []


def begin(stream: Any, mode: Any = GLOBAL) -> None:
    call("cuStreamBeginCapture", stream, mode)
    _begun.append(stream)


@pytest.fixture(autouse=True)
def no_capture_left(streams: Streams) -> Iterator[None]:
    """End what a failed test left capturing, while its streams are there: nothing works beside a capture."""
    yield
    for stream in _begun:
        if driver.cuStreamIsCapturing(stream)[1] not in (NONE, None):
            driver.cuStreamEndCapture(stream)
    _begun.clear()


def abandon(stream: Any) -> str:
    """End a capture that was invalidated; the code of the end, after which the stream is as it was before."""
    answer = code("cuStreamEndCapture", stream)
    assert status(stream) == NONE
    return answer


def end(stream: Any) -> None:
    """End a capture that is valid, and drop its graph."""
    call("cuGraphDestroy", call("cuStreamEndCapture", stream))


def elsewhere(device: Any, body: Callable[[], object]) -> object:
    """What a function answers in another thread."""
    answers: list[object] = []

    def run() -> None:
        call("cuCtxSetCurrent", device.context)
        answers.append(body())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


@pytest.fixture
def stream(streams: Streams) -> Any:
    return streams.nonblocking()


@pytest.fixture
def memory(page: int) -> Iterator[int]:
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemsetD8", r.va, 0, page)
        call("cuCtxSynchronize")
        yield r.va


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("kind", ["nonblocking", "blocking", "per_thread"])
def test_captured_work_runs_when_its_graph_does(
    kind: str, mode: Any, streams: Streams, memory: int, page: int, kernels: Kernels
) -> None:
    """cuStreamBeginCapture, cuGraphLaunch: operations are not executed but kept, and run at each launch."""
    stream = PER_THREAD if kind == "per_thread" else getattr(streams, kind)()
    other = streams.nonblocking()
    begin(stream, mode)
    kernels("memx_stamp", stream, memory, page // 2, 7 << 32, 0)
    call("cuMemcpyDtoDAsync", memory + page // 2, memory, page // 2, stream)
    assert status(stream) == ACTIVE
    graph = call("cuStreamEndCapture", stream)
    assert status(stream) == NONE
    runnable = call("cuGraphInstantiate", graph, 0)
    assert not read(memory, page).any()
    for _ in range(2):
        call("cuMemsetD8Async", memory, 0, page, other)
        call("cuStreamSynchronize", other)
        call("cuGraphLaunch", runnable, other)
        call("cuStreamSynchronize", other)
        assert (read(memory, page).reshape(2, -1) == pattern(page // 2, 7 << 32)).all()
    call("cuGraphExecDestroy", runnable)
    call("cuGraphDestroy", graph)


def test_the_legacy_stream_cannot_be_captured() -> None:
    """cuStreamBeginCapture: not on CU_STREAM_LEGACY."""
    for stream in (0, LEGACY):
        assert code("cuStreamBeginCapture", stream, RELAXED) in {"STREAM_CAPTURE_UNSUPPORTED", "INVALID_VALUE"}


def test_a_capture_begins_and_ends_once(stream: Any) -> None:
    """cuStreamBeginCapture, cuStreamEndCapture: not while capturing, not while not capturing."""
    assert code("cuStreamEndCapture", stream) in {"ILLEGAL_STATE", "INVALID_VALUE"}
    begin(stream)
    assert code("cuStreamBeginCapture", stream, GLOBAL) in {"ILLEGAL_STATE", "STREAM_CAPTURE_UNSUPPORTED"}
    driver.cuStreamEndCapture(stream)
    assert status(stream) == NONE


def test_each_capture_has_its_id(streams: Streams, stream: Any) -> None:
    """cuStreamGetCaptureInfo: the id is unique, and that of every stream which joined."""
    ids = []
    for _ in range(3):
        begin(stream)
        ids.append(int(call("cuStreamGetCaptureInfo", stream)[1]))
        joined = streams.nonblocking()
        streams.order(stream, joined)
        assert status(joined) == ACTIVE
        assert int(call("cuStreamGetCaptureInfo", joined)[1]) == ids[-1]
        streams.order(joined, stream)
        end(stream)
        assert status(joined) == NONE
    assert len(set(ids)) == 3
    assert 0 not in ids


QUESTIONS: dict[str, Callable[[Any], str]] = {
    "cuStreamSynchronize": lambda stream: code("cuStreamSynchronize", stream),
    "cuStreamQuery": lambda stream: code("cuStreamQuery", stream),
    "cuCtxSynchronize": lambda _: code("cuCtxSynchronize"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_capturing_stream_cannot_be_waited_for(question: str, stream: Any) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: not permitted when the stream is capturing; the capture is lost."""
    begin(stream)
    assert QUESTIONS[question](stream) == "STREAM_CAPTURE_UNSUPPORTED"
    assert status(stream) == INVALIDATED
    assert abandon(stream) == "STREAM_CAPTURE_INVALIDATED"
    call("cuStreamSynchronize", stream)


def test_nothing_joins_a_capture_that_is_lost(stream: Any, memory: int) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: by a previous error, until the capture is ended."""
    begin(stream)
    assert code("cuStreamSynchronize", stream) == "STREAM_CAPTURE_UNSUPPORTED"
    assert code("cuMemsetD8Async", memory, 0, 16, stream) == "STREAM_CAPTURE_INVALIDATED"
    abandon(stream)
    call("cuMemsetD8Async", memory, 0, 16, stream)


@pytest.mark.parametrize("question", ["cuEventQuery", "cuEventSynchronize"])
@pytest.mark.parametrize("mode", [GLOBAL, RELAXED], ids=["global", "relaxed"])
def test_an_event_of_a_capture_cannot_be_waited_for(question: str, mode: Any, streams: Streams, stream: Any) -> None:
    """CUDA_ERROR_CAPTURED_EVENT: not on an event last recorded in a capturing stream, in any mode."""
    begin(stream, mode)
    event = streams.recorded(stream)
    assert code(question, event) == "CAPTURED_EVENT"
    driver.cuStreamEndCapture(stream)
    call("cuEventRecord", event, stream)
    call("cuEventSynchronize", event)
    assert code("cuEventQuery", event) == "SUCCESS"


def test_a_fork_joins(streams: Streams, stream: Any, memory: int, page: int, kernels: Kernels) -> None:
    """cuStreamWaitEvent: a stream that waits for a capture's event is part of it, in order."""
    forked = streams.nonblocking()
    half = page // 2
    begin(stream)
    kernels("memx_stamp", stream, memory, half, 3 << 32, 0)
    streams.order(stream, forked)
    call("cuMemcpyDtoDAsync", memory + half, memory, half, forked)
    streams.order(forked, stream)
    kernels("memx_fill", stream, memory, half, 5)
    graph = call("cuStreamEndCapture", stream)
    runnable = call("cuGraphInstantiate", graph, 0)
    call("cuGraphLaunch", runnable, stream)
    call("cuStreamSynchronize", stream)
    assert (read(memory, half) == 5).all()
    assert (read(memory + half, half) == pattern(half, 3 << 32)).all()
    call("cuGraphExecDestroy", runnable)
    call("cuGraphDestroy", graph)


def test_a_fork_must_join(streams: Streams, stream: Any, memory: int) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_UNJOINED: a fork that was not joined to the primary stream."""
    forked = streams.nonblocking()
    begin(stream)
    streams.order(stream, forked)
    call("cuMemsetD8Async", memory, 0, 16, forked)
    assert abandon(stream) == "STREAM_CAPTURE_UNJOINED"
    assert status(forked) == NONE


def test_a_fork_that_joined_may_end(streams: Streams, stream: Any, memory: int, page: int) -> None:
    """cuStreamDestroy: what a forked stream recorded stays in the capture, if it was joined."""
    for joins in (True, False):
        forked = call("cuStreamCreate", NON_BLOCKING)
        begin(stream)
        streams.order(stream, forked)
        call("cuMemsetD8Async", memory, 6, page, forked)
        if joins:
            streams.order(forked, stream)
        call("cuStreamDestroy", forked)
        if not joins:
            assert abandon(stream) in {"STREAM_CAPTURE_UNJOINED", "STREAM_CAPTURE_INVALIDATED"}
            continue
        graph = call("cuStreamEndCapture", stream)
        runnable = call("cuGraphInstantiate", graph, 0)
        call("cuGraphLaunch", runnable, stream)
        call("cuStreamSynchronize", stream)
        assert (read(memory, page) == 6).all()
        call("cuGraphExecDestroy", runnable)
        call("cuGraphDestroy", graph)


def test_a_capture_ends_on_its_stream(streams: Streams, stream: Any) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: the capture was not initiated in this stream."""
    forked = streams.nonblocking()
    begin(stream)
    streams.order(stream, forked)
    assert code("cuStreamEndCapture", forked) == "STREAM_CAPTURE_UNMATCHED"
    abandon(stream)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread_local", "relaxed"])
def test_a_capture_ends_in_its_thread(device: Any, mode: Any, stream: Any) -> None:
    """cuStreamEndCapture: from the thread that began it, unless the mode is relaxed."""
    begin(stream, mode)
    answer, graph = elsewhere(device, lambda: driver.cuStreamEndCapture(stream))
    if mode == RELAXED:
        assert int(answer) == 0
        call("cuGraphDestroy", graph)
    else:
        assert answer.name == "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
        driver.cuStreamEndCapture(stream)
    assert status(stream) == NONE


def test_a_capture_waits_for_nothing_outside(streams: Streams, stream: Any) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_ISOLATION: a dependency that crosses the boundary."""
    outside = streams.nonblocking()
    with Gate(outside):
        event = streams.recorded(outside)
        begin(stream)
        assert code("cuStreamWaitEvent", stream, event, 0) == "STREAM_CAPTURE_ISOLATION"
        abandon(stream)


def test_captures_do_not_merge(streams: Streams, stream: Any) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_MERGE: of two independent capture sequences."""
    other = streams.nonblocking()
    begin(stream)
    begin(other)
    event = streams.recorded(other)
    assert code("cuStreamWaitEvent", stream, event, 0) == "STREAM_CAPTURE_MERGE"
    driver.cuStreamEndCapture(stream)
    driver.cuStreamEndCapture(other)
    assert (status(stream), status(other)) == (NONE, NONE)


def test_the_legacy_stream_is_unusable_while_a_blocking_one_captures(streams: Streams, memory: int) -> None:
    """CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: work there would depend on the capture; asking does not end it."""
    stream = streams.blocking()
    begin(stream, RELAXED)
    assert code("cuStreamIsCapturing", LEGACY) == "STREAM_CAPTURE_IMPLICIT"
    assert code("cuStreamGetCaptureInfo", LEGACY) == "STREAM_CAPTURE_IMPLICIT"
    assert status(stream) == ACTIVE
    assert code("cuMemsetD8Async", memory, 0, 16, LEGACY) == "STREAM_CAPTURE_IMPLICIT"
    abandon(stream)
    call("cuMemsetD8Async", memory, 0, 16, LEGACY)


def test_the_legacy_stream_is_free_while_a_nonblocking_one_captures(stream: Any, memory: int) -> None:
    """cuStreamIsCapturing: a non-blocking stream has no order with stream 0 to lose."""
    begin(stream, RELAXED)
    assert status(LEGACY) == NONE
    call("cuMemsetD8Async", memory, 0, 16, LEGACY)
    call("cuStreamSynchronize", LEGACY)
    assert status(stream) == ACTIVE
    end(stream)


def exchange(mode: Any) -> Any:
    """Set this thread's mode; the one before."""
    return call("cuThreadExchangeStreamCaptureMode", mode)


def allocate() -> str:
    """A call that is potentially unsafe."""
    answer, va = driver.cuMemAlloc(256)
    if int(answer) == 0:
        call("cuMemFree", va)
        return "SUCCESS"
    return str(answer.name).removeprefix("CUDA_ERROR_")


@pytest.mark.parametrize("thread", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("capture", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("where", ["same", "other"])
def test_unsafe_calls(device: Any, where: str, capture: Any, thread: Any, stream: Any) -> None:
    """cuThreadExchangeStreamCaptureMode: which calls a capture forbids, by its mode and the calling thread's."""
    own = RELAXED not in (capture, thread)
    forbidden = own if where == "same" else capture == thread == GLOBAL
    begin(stream, capture)

    def ask() -> str:
        before = exchange(thread)
        try:
            return allocate()
        finally:
            exchange(before)

    answer = ask() if where == "same" else elsewhere(device, ask)
    assert answer == ("STREAM_CAPTURE_UNSUPPORTED" if forbidden else "SUCCESS")
    assert status(stream) == (INVALIDATED if forbidden else ACTIVE)
    driver.cuStreamEndCapture(stream)


def test_modes_are_a_threads_own(device: Any) -> None:
    """cuThreadExchangeStreamCaptureMode: global at first, swapped with what is given, another in each thread."""
    assert exchange(RELAXED) == GLOBAL
    assert elsewhere(device, lambda: exchange(THREAD_LOCAL)) == GLOBAL
    assert exchange(GLOBAL) == RELAXED


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread_local", "relaxed"])
def test_memory_can_be_mapped_beside_a_capture(mode: Any, stream: Any, page: int) -> None:
    """cuThreadExchangeStreamCaptureMode: relaxed, a thread may create, map, grant, unmap and release."""
    begin(stream, mode)
    before = exchange(RELAXED)
    va = int(call("cuMemAddressReserve", page, 0, 0, 0))
    handle = call("cuMemCreate", page, properties(), 0)
    call("cuMemMap", va, page, 0, handle, 0)
    call("cuMemSetAccess", va, page, [access()], 1)
    call("cuMemUnmap", va, page)
    call("cuMemRelease", handle)
    call("cuMemAddressFree", va, page)
    exchange(before)
    assert status(stream) == ACTIVE
    end(stream)


def test_other_streams_work_beside_a_capture(streams: Streams, stream: Any, memory: int) -> None:
    """cuThreadExchangeStreamCaptureMode: relaxed, a thread may use and wait for what does not capture."""
    other = streams.nonblocking()
    begin(stream)
    before = exchange(RELAXED)
    call("cuMemsetD8Async", memory, 9, 16, other)
    event = streams.event(DISABLE_TIMING)
    call("cuEventRecord", event, other)
    call("cuEventSynchronize", event)
    assert code("cuEventQuery", event) == "SUCCESS"
    call("cuStreamSynchronize", other)
    assert int(call("cuStreamGetId", stream)) != int(call("cuStreamGetId", other))
    exchange(before)
    assert status(stream) == ACTIVE
    end(stream)


@pytest.mark.parametrize("function", ["cuCtxRecordEvent", "cuCtxWaitEvent"])
def test_a_context_with_a_capture_cannot_be_recorded(function: str, device: Any, streams: Streams, stream: Any) -> None:
    """cuCtxRecordEvent, cuCtxWaitEvent: unsupported while a stream of the context captures, which is lost."""
    event = streams.event(DISABLE_TIMING)
    begin(stream, RELAXED)
    try:
        assert code(function, device.context, event) == "STREAM_CAPTURE_UNSUPPORTED"
    except RuntimeError:
        end(stream)
        pytest.skip(f"this driver has no {function}")
    assert status(stream) == INVALIDATED
    abandon(stream)
