"""User objects: what graphs and what runs of them still hold references, and when the last one is gone."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cuda.bindings import driver

from .api import Gate, call, code
from .conftest import Streams

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
NO_SYNC = int(driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
MOVE = int(driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE)
SECONDS = 30


class Object:
    """A user object, and whether its destructor was called."""

    def __init__(self, references: int = 1) -> None:
        self.gone = threading.Event()
        self.thread: int | None = None
        self.given: int | None = None
        self.answer: int | None = None

        def destroy(data: int) -> None:
            self.thread, self.given = threading.get_ident(), data
            self.answer = int(driver.cuCtxSynchronize()[0])
            self.gone.set()

        self._thunk = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)
        function = driver.CUhostFn(_ptr=ctypes.addressof(self._thunk))
        self.handle = call("cuUserObjectCreate", 77, function, references, NO_SYNC)

    def ends(self) -> bool:
        return self.gone.wait(SECONDS)

    def lives(self) -> bool:
        """Nothing that was asked for before this can still end it."""
        fence = Object()
        call("cuUserObjectRelease", fence.handle, 1)
        assert fence.gone.wait(SECONDS)
        return not self.gone.is_set()


@pytest.fixture
def stream(streams: Streams) -> Any:
    return streams.nonblocking()


@pytest.fixture
def graph(stream: Any) -> Iterator[Any]:
    made = call("cuGraphCreate", 0)
    yield made
    driver.cuGraphDestroy(made)


def test_the_last_release_calls_the_destructor(streams: Streams) -> None:
    """cuUserObjectRelease: the destructor is invoked if the count reaches zero, by another thread, with its pointer."""
    one = Object(2)
    call("cuUserObjectRetain", one.handle, 3)
    call("cuUserObjectRelease", one.handle, 4)
    assert one.lives()
    call("cuUserObjectRelease", one.handle, 1)
    assert one.ends()
    assert one.given == 77
    assert one.thread != threading.get_ident()


def test_arguments_that_are_refused(graph: Any) -> None:
    """cuUserObjectCreate: the flag is required; counts are not zero and not over INT_MAX."""
    one = Object()
    function = driver.CUhostFn(_ptr=ctypes.addressof(one._thunk))
    assert code("cuUserObjectCreate", 0, function, 1, 0) == "INVALID_VALUE"
    assert code("cuUserObjectCreate", 0, function, 0, NO_SYNC) == "INVALID_VALUE"
    for count in (0, 1 << 31):
        assert code("cuUserObjectRetain", one.handle, count) == "INVALID_VALUE"
        assert code("cuUserObjectRelease", one.handle, count) == "INVALID_VALUE"
        assert code("cuGraphRetainUserObject", graph, one.handle, count, 0) == "INVALID_VALUE"
        assert code("cuGraphReleaseUserObject", graph, one.handle, count) == "INVALID_VALUE"
    assert code("cuGraphRetainUserObject", graph, one.handle, 1, 2) == "INVALID_VALUE"
    call("cuUserObjectRelease", one.handle, 1)
    assert one.ends()


@pytest.mark.parametrize("move", [True, False], ids=["moved", "added"])
def test_a_graph_holds_its_references(move: bool, graph: Any) -> None:
    """cuGraphRetainUserObject: the graph owns new references, or the caller's; its end gives them back."""
    one = Object()
    call("cuGraphRetainUserObject", graph, one.handle, 1, MOVE if move else 0)
    if not move:
        call("cuUserObjectRelease", one.handle, 1)
    assert one.lives()
    call("cuGraphDestroy", graph)
    assert one.ends()


def test_a_graph_gives_references_back(graph: Any) -> None:
    """cuGraphReleaseUserObject: references owned by the graph."""
    one = Object(3)
    call("cuGraphRetainUserObject", graph, one.handle, 3, MOVE)
    call("cuGraphReleaseUserObject", graph, one.handle, 2)
    assert one.lives()
    call("cuGraphReleaseUserObject", graph, one.handle, 1)
    assert one.ends()


def test_a_clone_has_its_own(graph: Any) -> None:
    """cuGraphClone: the copy holds references as the original does."""
    one = Object()
    call("cuGraphRetainUserObject", graph, one.handle, 1, MOVE)
    clone = call("cuGraphClone", graph)
    call("cuGraphDestroy", graph)
    assert one.lives()
    call("cuGraphDestroy", clone)
    assert one.ends()


def test_a_captured_graph_takes_them_while_it_is_captured(streams: Streams, stream: Any) -> None:
    """cuStreamGetCaptureInfo: operations on the graph other than its destruction are permitted during the capture."""
    one = Object()
    call("cuStreamBeginCapture", stream, RELAXED)
    forked = streams.nonblocking()
    streams.order(stream, forked)
    inside = call("cuStreamGetCaptureInfo", forked)[2]
    call("cuGraphRetainUserObject", inside, one.handle, 1, MOVE)
    streams.order(forked, stream)
    graph = call("cuStreamEndCapture", stream)
    assert int(graph) == int(inside)
    executable = call("cuGraphInstantiate", graph, 0)
    call("cuGraphDestroy", graph)
    assert one.lives()
    call("cuGraphExecDestroy", executable)
    assert one.ends()


def test_an_abandoned_capture_lets_go(stream: Any) -> None:
    """cuStreamEndCapture: a capture that was invalidated leaves no graph, and nothing that holds a reference."""
    one = Object()
    call("cuStreamBeginCapture", stream, RELAXED)
    call("cuGraphRetainUserObject", call("cuStreamGetCaptureInfo", stream)[2], one.handle, 1, MOVE)
    assert code("cuStreamSynchronize", stream) == "STREAM_CAPTURE_UNSUPPORTED"
    assert code("cuStreamEndCapture", stream) == "STREAM_CAPTURE_INVALIDATED"
    assert one.ends()


def test_a_launch_holds_them_until_it_is_over(streams: Streams, stream: Any) -> None:
    """cuGraphExecDestroy: references are kept until work that was launched is complete."""
    one = Object()
    memory = int(call("cuMemAlloc", 256))
    call("cuStreamBeginCapture", stream, RELAXED)
    call("cuMemsetD8Async", memory, 3, 256, stream)
    call("cuGraphRetainUserObject", call("cuStreamGetCaptureInfo", stream)[2], one.handle, 1, MOVE)
    graph = call("cuStreamEndCapture", stream)
    executable = call("cuGraphInstantiate", graph, 0)
    with Gate(stream) as gate:
        call("cuGraphLaunch", executable, stream)
        call("cuGraphExecDestroy", executable)
        call("cuGraphDestroy", graph)
        assert not one.gone.is_set()
        gate.open()
    assert one.ends()
    call("cuStreamSynchronize", stream)
    call("cuMemFree", memory)


def test_a_destructor_calls_no_driver(device: Any, streams: Streams) -> None:
    """cuUserObjectCreate: destructors cannot make driver calls."""
    if not device.simulated:
        pytest.skip("undefined where it is not refused")
    one = Object()
    call("cuUserObjectRelease", one.handle, 1)
    assert one.ends()
    assert one.answer == int(driver.CUresult.CUDA_ERROR_NOT_PERMITTED)
