"""What one stream's memory must wait for before another has it, beyond what the cases say."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from allocator.conftest import PAGE, give_to
from allocator.device import Kernels, ok, pattern
from cuda.bindings import driver

import memx
from memx import _native

Make = Callable[..., _native.Resource]
PER_THREAD = 2


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("taker_is_legacy", [False, True])
def test_the_implicit_order_holds_for_a_host_that_waits_for_the_new_owner(
    resource: Make, kernels: Kernels, streams: list[int], taker_is_legacy: bool, lazy: bool
) -> None:
    """x's memory goes on by the implicit order; its new owner queues nothing, is waited for, and hands it on."""
    r = resource(device=16, host=0, lazy=lazy)
    blocking, third = kernels.stream(0), streams[0]
    first, second = (blocking, 0) if taker_is_legacy else (0, blocking)
    x = r.allocate(PAGE, first)
    token = r.begin_use([(x, 0, PAGE, 2)], first)
    memx.sim.hold(first)
    kernels.stamp(first, x, PAGE, 1 << 32)
    r.end_use(token)
    r.free(x)
    y = r.allocate(PAGE, second)
    assert y == x
    assert not driver.cuStreamSynchronize(second)[0]
    token = r.begin_use([(y, 0, PAGE, 2)], third)
    kernels.stamp(third, y, PAGE, 2 << 32)
    r.end_use(token)
    memx.sim.release(first)
    kernels.synchronize()
    out = np.empty(PAGE, np.uint8)
    r.read(y, 0, out)
    assert np.array_equal(out, pattern(2 << 32, PAGE))
    kernels.destroy(blocking)


def test_merged_blocks_do_not_stay_active_for_work_that_is_over(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=16, host=0)
    s1, s2 = streams
    one, two, three = (r.allocate(1024, s1) for _ in range(3))
    memx.sim.hold(s1)
    memx.sim.hold(s2)
    kernels.stamp(s1, one, 3 * 1024, 1 << 32)
    r.record_stream(two, s2)
    r.free(one)
    r.free(two)
    s = r.statistics()
    assert s["active_bytes.current"] - s["allocated_bytes.current"] == 1024  # two: still in use on both
    kernels.synchronize()
    r.trim()
    s = r.statistics()
    assert s["active_bytes.current"] == s["allocated_bytes.current"] == 1024
    r.check()
    r.free(three)


def test_a_merged_block_is_its_streams_when_only_that_ones_work_is_left(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=16, host=0)
    s1, s2 = streams
    one, two, three = (r.allocate(1024, stream) for stream in (s1, s2, s1))
    memx.sim.hold(s1)
    memx.sim.hold(s2)
    kernels.stamp(s1, one, 1024, 1 << 32)
    kernels.stamp(s2, two, 1024, 2 << 32)
    r.record_stream(two, s1)
    r.free(two)
    r.free(one)
    memx.sim.release(s1)
    ok(driver.cuStreamSynchronize(s1))
    r.trim()
    s = r.statistics()
    assert s["active_bytes.current"] == s["allocated_bytes.current"] == 1024
    assert r.allocate(2048, s2) == one
    assert r.statistics()["driver_calls"]["cuEventQuery"] == s["driver_calls"]["cuEventQuery"]  # a hit at once
    memx.sim.release(s2)
    r.free(three)


def test_completion_learnt_by_waiting_frees_blocks_for_other_streams(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=16, host=0, lazy=True)
    s1, s2 = streams
    x, y = r.allocate(PAGE, s1), r.allocate(PAGE, s1)
    token = r.begin_use([(x, 0, PAGE, 2)], s1)
    kernels.stamp(s1, x, PAGE, 1 << 32)
    r.end_use(token)
    r.free(x)
    r.read(y, 0, np.empty(1, np.uint8))  # waits for s1
    assert r.allocate(PAGE, s2) == x


def test_a_read_that_fails_leaves_no_page_in_use(resource: Make) -> None:
    r = resource(device=4, host=8, lazy=True)
    size = 4 * PAGE
    a, b = r.allocate(size), r.allocate(2 * size)
    r.end_use(r.begin_use([(b, 0, PAGE, 2)], 0))
    memx.sim.fail("cuMemSetAccess", at=1, code="NOT_PERMITTED")
    memx.sim.fail("cuMemUnmap", every=1, code="NOT_PERMITTED")
    with pytest.raises(memx.DriverError):
        r.begin_use([(b, PAGE, PAGE, 2)], 0)
    with pytest.raises(memx.InvalidStateError, match="could not be unmapped"):
        r.read(b, 0, np.empty(2 * PAGE, np.uint8))
    for call in ("cuMemSetAccess", "cuMemUnmap"):
        memx.sim.fail(call)
    r.trim()
    r.end_use(r.begin_use([(a, 0, size, 2)], 0))


def use_behind(r: _native.Resource, kernels: Kernels, stream: int, held: int) -> int:
    """A buffer of the whole device whose work on a stream cannot begin before a held stream goes on."""
    x = r.allocate(2 * PAGE, stream)
    memx.sim.hold(held)
    kernels.order(stream, held)
    kernels.stamp(stream, x, 2 * PAGE, 1 << 32)
    return x


def test_a_free_when_the_stream_is_gone_and_its_handle_anothers(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=2, host=0)
    gone = kernels.stream()
    x = use_behind(r, kernels, gone, streams[0])
    kernels.destroy(gone)
    again = kernels.stream()
    assert again == gone  # the simulator's handles come back
    r.free(x)
    give_to(r, kernels, streams[1])
    kernels.destroy(again)


def test_a_free_by_another_thread_on_a_per_thread_stream(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    r = resource(device=2, host=0)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(driver.cuCtxSetCurrent, kernels.context).result()
        x = thread.submit(use_behind, r, kernels, PER_THREAD, streams[0]).result()
        r.free(x)
        give_to(r, kernels, streams[1])


def test_a_stream_recorded_in_another_thread_is_that_threads(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=2, host=0)
    held, other = streams
    x = r.allocate(2 * PAGE, other)
    with ThreadPoolExecutor(1) as thread:

        def use() -> None:
            kernels.order(PER_THREAD, held)
            kernels.stamp(PER_THREAD, x, 2 * PAGE, 1 << 32)
            r.record_stream(x, PER_THREAD)

        thread.submit(driver.cuCtxSetCurrent, kernels.context).result()
        memx.sim.hold(held)
        thread.submit(use).result()
        r.free(x)
        give_to(r, kernels, other)
