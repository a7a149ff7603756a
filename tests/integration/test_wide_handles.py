"""Uses that need a page or two of a larger handle, on a device too small for the rest of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels, ok
from cuda.bindings import driver

import memx
from memx import _native

Make = Callable[..., _native.Resource]
WRITE, BOTH = 2, 3


def two_in_one_handle(r: _native.Resource, stream: int) -> tuple[int, int]:
    """Two buffers of a page each on a handle of two pages."""
    a, b = r.allocate(PAGE, stream), r.allocate(PAGE, stream)
    before = r.statistics()["driver_calls"].get("cuMemCreate", 0)
    r.end_use(r.begin_use([(a, 0, PAGE, WRITE), (b, 0, PAGE, WRITE)], stream))
    assert r.statistics()["driver_calls"]["cuMemCreate"] == before + 1
    return a, b


def test_a_handle_is_cut_up_when_half_of_it_is_in_the_way(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=8, lazy=True)
    a, b = two_in_one_handle(r, 0)
    kernels.stamp(0, a, PAGE, 1 << 32)
    kernels.stamp(0, b, PAGE, 2 << 32)
    c = r.allocate(3 * PAGE)
    r.end_use(r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], 0))
    for address, seed in ((a, 1 << 32), (b, 2 << 32)):
        token = r.begin_use([(address, 0, PAGE, 1)], 0)
        kernels.verify(0, address, PAGE, seed)
        r.end_use(token)
    kernels.synchronize()
    assert kernels.mismatches == 0


def test_a_pinned_buffer_on_the_handle_does_not_move(resource: Make) -> None:
    r = resource(device=4, host=8, lazy=True)
    a, b = two_in_one_handle(r, 0)
    r.pin(b)
    c = r.allocate(3 * PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="pin"):
        r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], 0)
    assert r.statistics()["migrated_out_bytes"] == 0
    r.unpin(b)
    r.end_use(r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], 0))


def test_a_handle_that_a_graph_uses_is_an_error_at_once(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    r = resource(device=4, host=8, lazy=True)
    stream = streams[0]
    a, _ = two_in_one_handle(r, stream)
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    r.end_use(r.begin_use([(a, 0, PAGE, BOTH)], stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    c = r.allocate(3 * PAGE, stream)
    with pytest.raises(memx.OutOfMemoryError, match="captured graph"):
        r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], stream)
    ok(driver.cuGraphDestroy(graph))
    kernels.run_callbacks()
    r.end_use(r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], stream))


def test_a_handle_that_another_thread_uses_is_waited_for(resource: Make) -> None:
    r = resource(device=4, host=8, lazy=True)
    a, b = two_in_one_handle(r, 0)
    c = r.allocate(3 * PAGE)
    mine = r.begin_use([(b, 0, PAGE, BOTH)], 0)
    errors: list[BaseException] = []

    def other() -> None:
        try:
            r.end_use(r.begin_use([(a, 0, PAGE, BOTH), (c, 0, 3 * PAGE, WRITE)], 0))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    r.end_use(mine)
    thread.join()
    assert errors == []
