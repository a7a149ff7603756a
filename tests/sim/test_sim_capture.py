"""Capture: what it records, what it forbids, and what becomes of it then; graphs replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from memx import sim

from .conftest import Streams
from .machine import LEGACY, PAGE, Kernels, Range, call, code, isolated, read, write

pytestmark = pytest.mark.usefixtures("clean")

GLOBAL, THREAD_LOCAL, RELAXED = (driver.CUstreamCaptureMode(mode) for mode in range(3))
ACTIVE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
INVALIDATED = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED
NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


class Capturing:
    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.stream = streams.nonblocking()
        self.memory = Range((1, 1))
        self.va = self.memory.va

    def begin(self, mode: Any = GLOBAL) -> None:
        call("cuStreamBeginCapture", self.stream, mode)

    def status(self) -> Any:
        return call("cuStreamIsCapturing", self.stream)

    def end(self) -> str:
        return code("cuStreamEndCapture", self.stream)


@pytest.fixture
def capturing(streams: Streams) -> Iterator[Capturing]:
    made = Capturing(streams)
    yield made
    code("cuStreamEndCapture", made.stream)
    made.memory.__exit__()


def launch(graph: Any, stream: Any) -> Any:
    executable = call("cuGraphInstantiate", graph, 0)
    call("cuGraphLaunch", executable, stream)
    return executable


def test_captured_work_runs_at_each_launch_only(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    write(c.va, np.zeros(16, np.float32))
    write(c.va + PAGE, np.ones(16, np.float32))
    c.begin()
    kernels("memx_axpy", c.stream, c.va, c.va + PAGE, 1.0, 16)
    call("cuMemcpyDtoDAsync", c.va + 128, c.va, 4, c.stream)
    call("cuMemsetD8Async", c.va + 256, 7, 4, c.stream)
    graph = call("cuStreamEndCapture", c.stream)
    call("cuStreamSynchronize", c.stream)
    assert (read(c.va, 64).view(np.float32) == 0).all()
    nodes, count = call("cuGraphGetNodes", graph, 8)
    assert count == 3
    kinds = [call("cuGraphNodeGetType", node).name.rpartition("_")[2] for node in nodes[:3]]
    assert kinds == ["KERNEL", "MEMCPY", "MEMSET"]
    executable = launch(graph, c.stream)
    call("cuGraphDestroy", graph)
    call("cuGraphLaunch", executable, c.stream)
    call("cuStreamSynchronize", c.stream)
    assert (read(c.va, 64).view(np.float32) == 2).all()
    assert read(c.va + 128, 4).view(np.float32)[0] == 2
    call("cuGraphExecDestroy", executable)
    assert code("cuGraphLaunch", executable, c.stream) == "INVALID_VALUE"
    assert sim.races() == []


def test_streams_fork_and_join_inside_a_capture(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    side = c.streams.nonblocking()
    c.begin()
    kernels("memx_fill", c.stream, c.va, 64, 1)
    c.streams.order(c.stream, side)
    assert call("cuStreamIsCapturing", side) == ACTIVE
    kernels("memx_copy", side, c.va + PAGE, c.va, 64)
    kernels("memx_fill", c.stream, c.va + 64, 64, 2)
    c.streams.order(side, c.stream)
    kernels("memx_copy", c.stream, c.va + PAGE + 64, c.va + 64, 64)
    graph = call("cuStreamEndCapture", c.stream)
    assert call("cuStreamIsCapturing", side) == NONE
    executable = launch(graph, c.stream)
    call("cuStreamSynchronize", c.stream)
    assert read(c.va + PAGE, 128).tolist() == [1] * 64 + [2] * 64
    assert sim.races() == []
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph)


def test_a_race_inside_a_graph_is_found_at_its_launch(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    side = c.streams.nonblocking()
    c.begin()
    c.streams.order(c.stream, side)
    kernels("memx_fill", side, c.va, 64, 1)
    kernels("memx_fill", c.stream, c.va + 63, 64, 2)
    c.streams.order(side, c.stream)
    graph = call("cuStreamEndCapture", c.stream)
    assert sim.race_count() == 0
    executable = launch(graph, c.stream)
    assert sim.race_count() == 1
    call("cuGraphLaunch", executable, c.stream)
    assert sim.race_count() == 2
    call("cuStreamSynchronize", c.stream)
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph)


def test_a_graph_races_with_other_streams_as_its_work_would(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    other = c.streams.nonblocking()
    c.begin()
    kernels("memx_fill", c.stream, c.va, 64, 1)
    graph = call("cuStreamEndCapture", c.stream)
    executable = launch(graph, c.stream)
    c.streams.order(c.stream, other)
    kernels("memx_touch", other, c.va, 64, 0)
    assert sim.race_count() == 0
    call("cuGraphLaunch", executable, c.stream)
    assert sim.race_count() == 1
    call("cuCtxSynchronize")
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph)


FORBIDDEN: dict[str, tuple[Callable[[Capturing, Kernels], str], str]] = {
    "synchronise": (lambda c, _: code("cuStreamSynchronize", c.stream), "STREAM_CAPTURE_UNSUPPORTED"),
    "query": (lambda c, _: code("cuStreamQuery", c.stream), "STREAM_CAPTURE_UNSUPPORTED"),
    "context": (lambda *_: code("cuCtxSynchronize"), "STREAM_CAPTURE_UNSUPPORTED"),
    "context event": (
        lambda c, _: code("cuCtxRecordEvent", call("cuCtxGetCurrent"), c.streams.event()),
        "STREAM_CAPTURE_UNSUPPORTED",
    ),
    "allocate": (lambda *_: code("cuMemAlloc", 8), "STREAM_CAPTURE_UNSUPPORTED"),
    "pin": (lambda *_: code("cuMemAllocHost", 8), "STREAM_CAPTURE_UNSUPPORTED"),
    "copy": (lambda c, _: code("cuMemcpyDtoH", np.zeros(8).ctypes.data, c.va, 8), "STREAM_CAPTURE_UNSUPPORTED"),
    "query of an event outside": (lambda c, _: code("cuEventQuery", c.streams.event()), "STREAM_CAPTURE_UNSUPPORTED"),
    "captured event": (lambda c, _: code("cuEventQuery", recorded(c, c.stream)), "CAPTURED_EVENT"),
    "wait for a captured event": (lambda c, _: code("cuEventSynchronize", recorded(c, c.stream)), "CAPTURED_EVENT"),
    "isolation": (
        lambda c, _: code("cuStreamWaitEvent", c.stream, recorded(c, c.streams.nonblocking()), 0),
        "STREAM_CAPTURE_ISOLATION",
    ),
}


def recorded(c: Capturing, stream: Any) -> Any:
    event = c.streams.event()
    call("cuEventRecord", event, stream)
    return event


@pytest.mark.parametrize("what", FORBIDDEN)
def test_forbidden_calls_say_so_and_end_the_capture(what: str, capturing: Capturing, kernels: Kernels) -> None:
    body, expected = FORBIDDEN[what]
    c = capturing
    c.begin()
    assert body(c, kernels) == expected
    assert c.status() == INVALIDATED
    assert kernels.code("memx_touch", c.stream, c.va, 1, 0) == "STREAM_CAPTURE_INVALIDATED"
    assert c.end() == "STREAM_CAPTURE_INVALIDATED"
    assert c.status() == NONE
    kernels("memx_touch", c.stream, c.va, 1, 0)
    call("cuStreamSynchronize", c.stream)


def test_the_legacy_stream_is_off_limits_while_a_blocking_stream_captures(streams: Streams, kernels: Kernels) -> None:
    blocking = streams.blocking()
    with Range((1,)) as r:
        call("cuStreamBeginCapture", blocking, RELAXED)
        assert code("cuStreamIsCapturing", LEGACY) == "STREAM_CAPTURE_IMPLICIT"
        assert code("cuStreamGetCaptureInfo", LEGACY) == "STREAM_CAPTURE_IMPLICIT"
        assert call("cuStreamIsCapturing", blocking) == ACTIVE
        assert kernels.code("memx_touch", LEGACY, r.va, 1, 0) == "STREAM_CAPTURE_IMPLICIT"
        assert code("cuStreamEndCapture", blocking) == "STREAM_CAPTURE_INVALIDATED"
        nonblocking = streams.nonblocking()
        call("cuStreamBeginCapture", nonblocking, RELAXED)
        kernels("memx_touch", LEGACY, r.va, 1, 0)
        call("cuGraphDestroy", call("cuStreamEndCapture", nonblocking))


@pytest.mark.parametrize("thread_mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_unsafe_calls_by_mode_and_thread(where: str, mode: Any, thread_mode: Any, capturing: Capturing) -> None:
    c = capturing
    context = call("cuCtxGetCurrent")
    seen: list[str] = []

    def ask() -> None:
        call("cuCtxSetCurrent", context)
        before = call("cuThreadExchangeStreamCaptureMode", thread_mode)
        seen.append(code("cuEventQuery", event))
        assert call("cuThreadExchangeStreamCaptureMode", before) == thread_mode

    event = c.streams.event()
    c.begin(mode)
    if where == "here":
        ask()
        forbidden = RELAXED not in (mode, thread_mode)
    else:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        forbidden = mode == GLOBAL and thread_mode == GLOBAL
    assert seen == ["STREAM_CAPTURE_UNSUPPORTED" if forbidden else "SUCCESS"]
    assert c.status() == (INVALIDATED if forbidden else ACTIVE)


def test_ends_that_do_not_match(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    side = c.streams.nonblocking()
    assert code("cuStreamEndCapture", side) == "ILLEGAL_STATE"
    assert code("cuStreamBeginCapture", LEGACY, GLOBAL) == "STREAM_CAPTURE_UNSUPPORTED"
    c.begin()
    assert code("cuStreamBeginCapture", c.stream, GLOBAL) == "ILLEGAL_STATE"
    c.streams.order(c.stream, side)
    kernels("memx_touch", side, c.va, 1, 0)
    assert c.end() == "STREAM_CAPTURE_UNJOINED"
    assert call("cuStreamIsCapturing", side) == NONE
    c.begin()
    c.streams.order(c.stream, side)
    assert code("cuStreamEndCapture", side) == "STREAM_CAPTURE_UNMATCHED"
    assert c.end() == "STREAM_CAPTURE_INVALIDATED"


@pytest.mark.parametrize(("mode", "expected"), [(GLOBAL, "STREAM_CAPTURE_WRONG_THREAD"), (RELAXED, "SUCCESS")])
def test_another_thread_ends_only_relaxed_captures(mode: Any, expected: str, capturing: Capturing) -> None:
    c = capturing
    c.begin(mode)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(c.end()))
    thread.start()
    thread.join()
    assert seen == [expected]


def test_two_captures_do_not_merge(capturing: Capturing) -> None:
    c = capturing
    other = c.streams.nonblocking()
    c.begin()
    call("cuStreamBeginCapture", other, GLOBAL)
    assert code("cuStreamWaitEvent", c.stream, recorded(c, other), 0) == "STREAM_CAPTURE_MERGE"
    assert c.end() == "STREAM_CAPTURE_INVALIDATED"
    assert code("cuStreamEndCapture", other) == "STREAM_CAPTURE_INVALIDATED"


def test_capture_information(capturing: Capturing, kernels: Kernels) -> None:
    c = capturing
    assert call("cuStreamGetCaptureInfo", c.stream)[0] == NONE
    c.begin()
    status, first, *_ = call("cuStreamGetCaptureInfo", c.stream)
    assert status == ACTIVE
    assert int(first) > 0
    c.end()
    c.begin()
    kernels("memx_touch", c.stream, c.va, 1, 0)
    _, second, _, dependencies, _, count = call("cuStreamGetCaptureInfo", c.stream)
    assert int(second) > int(first)
    assert count == len(dependencies) == 1


def test_destroying_a_capturing_stream_ends_the_capture(streams: Streams) -> None:
    stream = call("cuStreamCreate", 1)
    call("cuStreamBeginCapture", stream, GLOBAL)
    call("cuStreamDestroy", stream)
    assert code("cuEventQuery", streams.event()) == "SUCCESS"


def test_memory_that_a_graph_needs_must_still_be_there() -> None:
    out = isolated(
        """
s = call("cuStreamCreate", NON_BLOCKING)
r = Range((1,))
call("cuStreamBeginCapture", s, driver.CUstreamCaptureMode(0))
kernels("memx_fill", s, r.va, 64, 1)
graph = call("cuGraphInstantiate", call("cuStreamEndCapture", s), 0)
call("cuGraphLaunch", graph, s)
call("cuStreamSynchronize", s)
call("cuMemUnmap", r.va, PAGE)
print(sim.races())
call("cuGraphLaunch", graph, s)
print(code("cuStreamSynchronize", s))
"""
    )
    assert out == "[]\nILLEGAL_ADDRESS\n"
