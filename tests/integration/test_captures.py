"""A capture is never broken by memx, whoever asks it for what meanwhile; what a graph uses stays where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels, ok, pattern
from cuda.bindings import driver

import memx
from memx import _native
from memx.replay import Limits, replay
from memx.trace import events as ev

Make = Callable[..., _native.Resource]
GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
IMPLICIT = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT


@contextmanager
def capture(stream: int) -> Iterator[None]:
    """Captures, and fails if anything broke the capture."""
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    try:
        yield
    finally:
        code, graph = driver.cuStreamEndCapture(stream)
    assert not code, code
    ok(driver.cuGraphDestroy(graph))


def held_free(r: _native.Resource, kernels: Kernels, stream: int, nbytes: int) -> None:
    """A freed buffer whose work on a stream has not begun."""
    address = r.allocate(nbytes, stream)
    token = r.begin_use([(address, 0, nbytes, 2)], stream)
    memx.sim.hold(stream)
    kernels.stamp(stream, address, nbytes, 1 << 32)
    r.end_use(token)
    r.free(address)


class Graph:
    """What was captured on a stream, to be launched and destroyed."""

    def __init__(self, stream: int) -> None:
        self.graph = ok(driver.cuStreamEndCapture(stream))
        self.executable = ok(driver.cuGraphInstantiate(self.graph, 0))

    def launch(self, stream: int) -> None:
        ok(driver.cuGraphLaunch(self.executable, stream))

    def destroy(self) -> None:
        ok(driver.cuGraphDestroy(self.graph))
        ok(driver.cuGraphExecDestroy(self.executable))


@pytest.fixture(params=[0, 1], ids=["blocking", "nonblocking"])
def captured(request: pytest.FixtureRequest, kernels: Kernels) -> Iterator[int]:
    stream = kernels.stream(request.param)
    yield stream
    kernels.destroy(stream)


@pytest.mark.usefixtures("simulated")
def test_asking_whether_the_legacy_stream_captures_harms_no_capture(kernels: Kernels) -> None:
    stream = kernels.stream(0)
    with capture(stream):
        assert driver.cuStreamIsCapturing(0)[0] == IMPLICIT
    kernels.destroy(stream)


@pytest.mark.parametrize("lazy", [False, True])
def test_an_allocation_that_asks_about_events_breaks_no_capture(
    resource: Make, kernels: Kernels, streams: list[int], captured: int, lazy: bool
) -> None:
    r = resource(device=8, host=8, lazy=lazy)
    used, other = streams
    held_free(r, kernels, used, PAGE)
    with capture(captured):
        for size in (PAGE, 2 * PAGE, 3 * PAGE):
            r.end_use(r.begin_use([(r.allocate(size, other), 0, size, 2)], other))
    memx.sim.release(used)


@pytest.mark.parametrize("lazy", [False, True])
def test_waiting_for_memory_breaks_no_capture(
    resource: Make, kernels: Kernels, streams: list[int], captured: int, lazy: bool
) -> None:
    r = resource(device=4, host=0, lazy=lazy)
    used, other = streams
    held_free(r, kernels, used, 3 * PAGE)
    with capture(captured):
        address = r.allocate(4 * PAGE, other)
        r.end_use(r.begin_use([(address, 0, 4 * PAGE, 2)], other))
    memx.sim.release(used)


def test_what_only_the_context_orders_is_not_waited_for_in_a_capture(
    resource: Make, kernels: Kernels, streams: list[int], captured: int
) -> None:
    r = resource(device=4, host=0)
    gone, other = kernels.stream(), streams[0]
    address = r.allocate(3 * PAGE, gone)
    kernels.stamp(gone, address, 3 * PAGE, 1 << 32)
    kernels.destroy(gone)
    r.free(address)
    r.allocate(1, captured)
    with capture(captured), pytest.raises(memx.OutOfMemoryError):
        r.allocate(3 * PAGE, other)
    assert r.allocate(3 * PAGE, other)


def test_pages_that_a_capture_keeps_from_being_waited_for_stay_and_others_give_way(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    """The colder page's work is on the legacy stream: nothing can be recorded there while a blocking one captures."""
    r = resource(device=2, host=4, lazy=True)
    used, other = streams
    captured = kernels.stream(0)
    cold, warm, new = (r.allocate(PAGE, stream) for stream in (0, used, other))

    def use(address: int, stream: int) -> None:
        token = r.begin_use([(address, 0, PAGE, 2)], stream)
        kernels.stamp(stream, address, PAGE, address)
        r.end_use(token)

    memx.sim.hold(0)
    use(cold, 0)
    use(warm, used)
    ok(driver.cuStreamSynchronize(used))
    kernels.order(other, 0)
    r.note_wait(other, 0)
    with capture(captured):
        use(new, other)
    memx.sim.release(0)
    kernels.synchronize()
    moved = r.statistics()["migrated_out_bytes"]
    for address in (cold, new):
        r.end_use(r.begin_use([(address, 0, PAGE, 1)], other))
    assert r.statistics()["migrated_out_bytes"] == moved == PAGE
    for address in (cold, warm, new):
        out = np.empty(PAGE, np.uint8)
        r.read(address, 0, out)
        assert np.array_equal(out, pattern(address, PAGE))
    kernels.destroy(captured)


def test_trimming_breaks_no_capture(resource: Make, kernels: Kernels, streams: list[int], captured: int) -> None:
    r = resource(device=8, host=0)
    held_free(r, kernels, streams[0], PAGE)
    held_free(r, kernels, 0, PAGE)
    r.allocate(1, captured)
    with capture(captured):
        r.trim()
    memx.sim.release(streams[0])
    memx.sim.release(0)


def test_moving_is_refused_in_a_capture_and_breaks_none(resource: Make, streams: list[int], captured: int) -> None:
    r = resource(device=8, host=8)
    a = r.allocate(PAGE, streams[0])
    r.allocate(PAGE, captured)
    with capture(captured):
        for move in (lambda: r.evict(a), lambda: r.prefetch(a, 0), r.rebalance, lambda: r.pause(r.tag_id("t"))):
            with pytest.raises(memx.InvalidStateError):
                move()


def test_lazy_pages_that_a_graph_uses_stay_and_others_give_way(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=4, host=8, lazy=True)
    stream = streams[0]
    tag = r.tag_id("graph")
    in_graph = r.allocate(2 * PAGE, stream, tag=tag)
    r.end_use(r.begin_use([(in_graph, 0, 2 * PAGE, 2)], stream))
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    r.end_use(r.begin_use([(in_graph, 0, 2 * PAGE, 2)], stream))
    graph = Graph(stream)
    moved = r.statistics()["migrated_out_bytes"]
    others = [r.allocate(2 * PAGE, stream) for _ in range(3)]
    for _ in range(2):
        for address in others:
            r.end_use(r.begin_use([(address, 0, 2 * PAGE, 3)], stream))
    assert r.statistics()["migrated_out_bytes"] - moved == 5 * 2 * PAGE
    with pytest.raises(memx.OutOfMemoryError):
        r.begin_use([(others[0], 0, 2 * PAGE, 3), (others[1], 0, 2 * PAGE, 3)], stream)
    for refused in (lambda: r.pause(tag), lambda: r.evict(in_graph)):
        with pytest.raises(memx.InvalidStateError, match="captured graph"):
            refused()
    graph.destroy()
    kernels.run_callbacks()
    r.pause(tag)
    r.end_use(r.begin_use([(others[0], 0, 2 * PAGE, 3), (others[1], 0, 2 * PAGE, 3)], stream))
    kernels.synchronize()


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
def test_what_a_capture_freed_is_kept_for_its_graph_and_no_longer(
    resource: Make, kernels: Kernels, streams: list[int], captured: int, reuse: str, lazy: bool
) -> None:
    r = resource(device=2, host=0, reuse=reuse, lazy=lazy)
    held, other = streams
    x = r.allocate(2 * PAGE, captured)
    r.end_use(r.begin_use([(x, 0, 2 * PAGE, 2)], captured))
    ok(driver.cuStreamBeginCapture(captured, GLOBAL))
    token = r.begin_use([(x, 0, 2 * PAGE, 2)], captured)
    kernels.stamp(captured, x, 2 * PAGE, 1 << 32)
    r.end_use(token)
    r.free(x)
    graph = Graph(captured)

    def use(stream: int) -> int:
        y = r.allocate(2 * PAGE, stream)
        token = r.begin_use([(y, 0, 2 * PAGE, 2)], stream)
        kernels.stamp(stream, y, 2 * PAGE, 2 << 32)
        r.end_use(token)
        return y

    memx.sim.hold(held)
    kernels.order(captured, held)
    graph.launch(captured)
    with pytest.raises(memx.OutOfMemoryError):
        use(captured)
    graph.destroy()  # its last launch is still to come
    with pytest.raises(memx.OutOfMemoryError):
        use(other)
    memx.sim.release(held)
    kernels.synchronize()
    kernels.run_callbacks()
    y = use(other)
    kernels.synchronize()
    out = np.empty(2 * PAGE, np.uint8)
    r.read(y, 0, out)
    assert np.array_equal(out, pattern(2 << 32, 2 * PAGE))
    r.free(y)
    r.check()


def test_an_executable_graph_keeps_memory_as_its_source_did(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=2, host=0)
    stream = streams[0]
    x = r.allocate(PAGE, stream)
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    r.free(x)
    graph = Graph(stream)
    ok(driver.cuGraphDestroy(graph.graph))
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == PAGE
    ok(driver.cuGraphExecDestroy(graph.executable))
    kernels.run_callbacks()
    r.trim()
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0


def test_a_graph_may_outlive_the_resource(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    stream = streams[0]
    r = _native.Resource(0, 2 * PAGE, 0, page=PAGE)
    x = r.allocate(PAGE, stream)
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    r.free(x)
    graph = Graph(stream)
    r.close()
    del r
    graph.destroy()


def test_many_graphs_leave_no_trace(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    r = resource(device=4, host=0)
    stream = streams[0]
    for _ in range(50):
        x = r.allocate(3 * PAGE, stream)
        ok(driver.cuStreamBeginCapture(stream, GLOBAL))
        r.free(x)
        ok(driver.cuGraphDestroy(ok(driver.cuStreamEndCapture(stream))))
        kernels.run_callbacks()
    r.check()


def test_a_capture_unmaps_nothing_though_it_is_known_to_be_idle(oracle: None) -> None:
    page = 64 << 10
    events: list[ev.Event] = [
        ev.Stream(1, "nonblocking"),
        ev.Alloc("a", 3 * page, 1),
        ev.Alloc("above", page, 1),
        ev.Free("a"),
        ev.Sync(),
        ev.Alloc("too large", 100 * page, 1, expect="oom"),  # asks about events on the way
        ev.Step(),
        ev.Capture("begin", 1),
        ev.Alloc("b", 4 * page, 1),
        ev.Check("driver_calls.cuMemUnmap", equals=0),
        ev.Check("driver_calls.cuMemRelease", equals=0),
        ev.Capture("end", 1),
    ]
    result = replay(events, Limits(16 * page, 0, page, "default", False))
    assert result.ok, result.failures
    assert result.peak_reserved_bytes == 8 * page
