"""A framework's resource: its streams last and its captures are announced, so a hit asks the driver nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from cuda.bindings import driver

import memx
from memx import _native

from .conftest import PAGE, give_to
from .device import Kernels, ok, pattern
from .test_eager import calls, since

Make = Callable[..., _native.Resource]
GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@pytest.fixture
def streams(kernels: Kernels) -> Iterator[list[int]]:
    made = [kernels.stream(), kernels.stream()]
    yield made
    for stream in made:
        kernels.destroy(stream)


GRAPHS: list[object] = []


@pytest.fixture(autouse=True)
def graphs() -> Iterator[list[object]]:
    """Those that were captured; they are destroyed when a test is over, or before."""
    yield GRAPHS
    destroy_graphs()


def destroy_graphs() -> None:
    while GRAPHS:
        ok(driver.cuGraphDestroy(GRAPHS.pop()))


def private_tag(r: _native.Resource) -> int:
    """A pool of memory for graphs."""
    tag = r.tag_id("graph pool")
    r.private_tag(tag)
    return tag


@contextmanager
def capture(r: _native.Resource, stream: int) -> Iterator[None]:
    """An announced capture."""
    r.announce_capture(True)
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    try:
        yield
    finally:
        GRAPHS.append(ok(driver.cuStreamEndCapture(stream)))
        r.announce_capture(False)


@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
def test_a_hit_and_its_free_make_no_driver_call(
    resource: Make, kernels: Kernels, streams: list[int], reuse: str
) -> None:
    r = resource(framework=True, reuse=reuse)
    for stream in (0, streams[0]):
        for address in [r.allocate(size, stream) for size in (3 * PAGE, 512)]:
            r.free(address)
        before = calls(r)
        for _ in range(100):
            address = r.allocate(3 * PAGE - 512, stream)
            small = r.allocate(512, stream)
            r.record_stream(small, stream)
            r.free(address, stream)
            r.free(small)
        assert since(r, before) == {}


def test_a_point_recorded_late_still_keeps_other_streams_out(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=2, host=0, framework=True)
    one, two = streams
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    give_to(r, kernels, two)  # the wait lets the held stream go


def test_a_late_point_is_found_over_without_a_wait(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    r = resource(device=2, host=0, framework=True)
    one, two = streams
    x = r.allocate(2 * PAGE, one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    kernels.synchronize()
    before = calls(r)
    assert r.allocate(2 * PAGE, two) == x
    assert not {"cuEventSynchronize", "cuMemMap", "cuMemUnmap"} & set(since(r, before))


def test_a_stream_that_is_gone_all_the_same_is_waited_for_with_the_context(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    """Its handle is another stream's when somebody asks for the memory."""
    r = resource(device=2, host=0, framework=True)
    held, other = streams
    gone = kernels.stream()
    x = r.allocate(2 * PAGE, gone)
    memx.sim.hold(held)
    kernels.order(gone, held)
    kernels.stamp(gone, x, 2 * PAGE, 1 << 32)
    r.free(x)
    kernels.destroy(gone)
    again = kernels.stream()
    assert again == gone
    give_to(r, kernels, other)
    kernels.destroy(again)


def test_a_read_waits_for_a_stream_that_is_gone_and_its_handle_anothers(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(framework=True)
    gone = kernels.stream()
    x = r.allocate(PAGE, gone)
    memx.sim.hold(streams[0])
    kernels.order(gone, streams[0])
    kernels.stamp(gone, x, PAGE, 1 << 32)
    kernels.destroy(gone)
    again = kernels.stream()
    assert again == gone
    out = np.empty(PAGE, np.uint8)
    r.read(x, 0, out)
    assert np.array_equal(out, pattern(1 << 32, PAGE))
    r.free(x)
    kernels.destroy(again)


def test_captures_are_asked_about_only_while_one_is_announced(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(framework=True)
    r.free(r.allocate(PAGE, streams[0]))
    before = calls(r)
    r.announce_capture(True)
    r.free(r.allocate(PAGE, streams[0]))
    assert since(r, before).get("cuStreamIsCapturing", 0) > 0
    r.announce_capture(False)
    before = calls(r)
    r.free(r.allocate(PAGE, streams[0]))
    r.allocate(2 * PAGE, streams[1])  # a miss
    assert "cuStreamIsCapturing" not in since(r, before)


def test_a_private_pool_is_reused_in_its_captures_and_nowhere_else(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=16, host=0, framework=True)
    one, two = streams
    tag = private_tag(r)
    with capture(r, one):
        x = r.allocate(PAGE, one, tag=tag)
        r.free(x)
        assert r.allocate(PAGE, one, tag=tag) == x
        assert r.allocate(PAGE, two, tag=tag) != x
        r.free(x)
        assert r.allocate(PAGE, one) != x
    assert r.allocate(PAGE, one, tag=tag) != x  # the graph may run while this is used
    with capture(r, one):
        assert r.allocate(PAGE, one, tag=tag) == x  # another graph of the same pool
    r.check()


def test_what_one_stream_freed_in_a_capture_another_of_its_streams_does_not_get(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    """Two branches of a graph run at once."""
    r = resource(device=4, host=0, framework=True)
    one, two = streams
    tag = private_tag(r)
    with capture(r, one):
        kernels.order(two, one)
        x = r.allocate(PAGE, one, tag=tag)
        r.free(x)
        assert r.allocate(PAGE, two, tag=tag) != x
        assert r.allocate(PAGE, one, tag=tag) == x
        kernels.order(one, two)


def test_memory_of_a_private_pool_is_kept_for_its_graph_after_it_was_freed(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=4, host=0, framework=True)
    one = streams[0]
    tag = private_tag(r)
    with capture(r, one):
        x = r.allocate(4 * PAGE, one, tag=tag)
    r.free(x)  # not in the capture
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 4 * PAGE
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(PAGE, one)
    r.retire_tag(tag)
    assert r.allocate(4 * PAGE, one)


@pytest.mark.parametrize("live", [False, True])
def test_a_retired_pools_memory_waits_for_all_work_of_the_context(
    resource: Make, kernels: Kernels, streams: list[int], live: bool
) -> None:
    r = resource(device=4, host=0, framework=True)
    one, two = streams
    tag = private_tag(r)
    with capture(r, one):
        x = r.allocate(4 * PAGE, one, tag=tag)
        if not live:
            r.free(x)
    memx.sim.hold(two)  # the last replay of the graph
    kernels.stamp(two, x, 4 * PAGE, 1 << 32)
    r.retire_tag(tag)
    if live:
        r.free(x)
    y = r.allocate(4 * PAGE, one)  # waits
    kernels.stamp(one, y, 4 * PAGE, 2 << 32)
    kernels.synchronize()
    out = np.empty(4 * PAGE, np.uint8)
    r.read(y, 0, out)
    assert np.array_equal(out, pattern(2 << 32, 4 * PAGE))
    r.free(y)
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0


def test_a_retired_pools_memory_merges_with_ordinary_memory(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0, framework=True)
    tag = private_tag(r)
    live = r.allocate(PAGE, 0, tag=tag)
    r.free(r.allocate(PAGE, 0, tag=tag))
    r.retire_tag(tag)
    r.free(live)
    kernels.synchronize()
    assert r.allocate(2 * PAGE, 0) == live
    r.check()


@pytest.mark.parametrize("private", [False, True])
def test_a_graph_that_is_gone_needs_no_retired_pool(
    resource: Make, kernels: Kernels, streams: list[int], private: bool
) -> None:
    r = resource(device=4, host=0, framework=True)
    one = streams[0]
    tag = r.tag_id("graph pool")
    if private:
        r.private_tag(tag)
    outside = r.allocate(2 * PAGE, one)
    with capture(r, one):
        inside = r.allocate(2 * PAGE, one, tag=tag)
        r.free(outside)
        r.free(inside)
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(3 * PAGE, one)
    destroy_graphs()
    kernels.run_callbacks()
    assert r.allocate(4 * PAGE, one)
