"""A limit that changes, devices that reach one another, and what is told about blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cuda.bindings import driver

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, ok

Make = Callable[..., _native.Resource]


def test_a_lower_limit_takes_cached_memory_and_holds(resource: Make) -> None:
    r = resource(device=16, host=0)
    a = r.allocate(4 * PAGE)
    r.free(r.allocate(8 * PAGE))
    ok(driver.cuCtxSynchronize())
    r.set_device_limit(6 * PAGE)
    assert r.statistics()["reserved_bytes.current"] <= 6 * PAGE
    assert r.device_limit() == 6 * PAGE
    with pytest.raises(memx.OutOfMemoryError, match="limit 384 KiB"):
        r.allocate(3 * PAGE)
    b = r.allocate(2 * PAGE)
    r.free(a)
    r.free(b)


def test_a_limit_below_what_is_in_use_is_refused_and_changes_nothing(resource: Make) -> None:
    r = resource(device=16, host=0)
    a = r.allocate(8 * PAGE)
    with pytest.raises(memx.InvalidStateError, match="512 KiB are in use"):
        r.set_device_limit(4 * PAGE)
    assert r.device_limit() == 16 * PAGE
    with pytest.raises(memx.InvalidValueError, match="smaller than one page"):
        r.set_device_limit(PAGE - 1)
    r.free(a)


def test_a_raised_limit_gives_room(resource: Make) -> None:
    r = resource(device=4, host=0)
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(6 * PAGE)
    r.set_device_limit(8 * PAGE)
    r.free(r.allocate(6 * PAGE))


def test_mapped_and_pinned_host_pages_share_the_limit(resource: Make) -> None:
    r = resource(device=4, host=4)
    tag = r.tag_id("t")
    a = r.allocate(3 * PAGE, tag=tag)
    r.pause(tag)
    r.resume(tag)  # the pinned pages that it was copied to are free, and kept
    assert r.statistics()["host_bytes.current"] == 3 * PAGE
    r.allocate(2 * PAGE, placement="host")
    assert r.statistics()["host_bytes.peak"] <= 4 * PAGE
    r.free(a)


def reach(kernels: Kernels, address: int, nbytes: int) -> np.ndarray:
    """Sets bytes from the other device, and reads them."""
    other = ok(driver.cuDevicePrimaryCtxRetain(1))
    ok(driver.cuCtxSetCurrent(other))
    try:
        ok(driver.cuMemsetD8Async(address, 9, nbytes, 0))
        ok(driver.cuCtxSynchronize())
    finally:
        ok(driver.cuCtxSetCurrent(kernels.context))
        ok(driver.cuDevicePrimaryCtxRelease(1))
    return memx.sim.view((address, nbytes))


def test_a_peer_reaches_what_is_there_and_what_comes(resource: Make, kernels: Kernels) -> None:
    r = resource(device=16, host=4)
    before = r.allocate(2 * PAGE)
    r.enable_peer(1)
    r.enable_peer(1)
    after = r.allocate(2 * PAGE)
    for address in (before, after):
        assert (reach(kernels, address, 2 * PAGE) == 9).all()
    r.evict(before)  # another page at the same address
    assert (reach(kernels, before, 2 * PAGE) == 9).all()
    calls = r.statistics()["driver_calls"]["cuMemSetAccess"]
    r.free(after)
    r.free(before)
    assert r.statistics()["driver_calls"]["cuMemSetAccess"] == calls
    assert r.can_be_reached_from(1)


def test_a_peer_that_cannot_be_had_leaves_things_as_they_were(resource: Make) -> None:
    r = resource(device=16, host=0)
    a = r.allocate(2 * PAGE)
    memx.sim.fail("cuMemSetAccess", at=1, code="INVALID_DEVICE")
    with pytest.raises(memx.DriverError, match="giving device 1 access"):
        r.enable_peer(1)
    memx.sim.fail("cuMemSetAccess")
    b = r.allocate(2 * PAGE)
    r.enable_peer(1)
    r.free(a)
    r.free(b)


def test_blocks_tile_what_is_held(resource: Make) -> None:
    r = resource(device=16, host=4)
    tag = r.tag_id("weights")
    a, b, c = r.allocate(1000), r.allocate(3 * PAGE, tag=tag), r.allocate(2000)
    blocks = r.blocks()
    assert [
        (address, nbytes, requested) for address, nbytes, requested, state, *_ in blocks if state == "allocated"
    ] == [(address, -(-n // 512) * 512, n) for address, n in sorted([(a, 1000), (b, 3 * PAGE), (c, 2000)])]
    assert sum(nbytes for _, nbytes, *_ in blocks) == r.statistics()["reserved_bytes.current"]
    assert {t: sum(n for _, n, *_, tag_, _ in blocks if tag_ == t) for t in (0, tag)} == {0: PAGE, tag: 3 * PAGE}
    assert r.extent_of(b + 5) == (b, 3 * PAGE)
    assert r.extent_of(a + 999) == (a, 1000)
    assert r.extent_of(1) == (0, 0)
    assert r.covers(b)
    assert not r.covers(1)
    r.evict(b)
    assert {place for address, *_, place, _, _ in r.blocks() if address == b} == {"host"}
    assert r.free_blocks()[0] >= 1
    for address in (a, b, c):
        r.free(address)
    assert r.free_blocks()[0] == 0


def test_totals_are_reset_apart_from_peaks(resource: Make) -> None:
    r = resource(device=16, host=0)
    r.free(r.allocate(3000))
    a = r.allocate(2 << 20 >> 4)
    flows = r.flows()
    assert flows["blocks.all"] == (1, 1, 2, 1)
    assert flows["requested_bytes.small"] == (131072, 131072, 134072, 3000)
    r.reset_accumulated_statistics()
    assert r.flows()["blocks.all"] == (1, 1, 0, 0)
    assert r.flows()["requested_bytes.all"][1] == 131072
    r.free(a)
    assert r.flows()["blocks.all"] == (0, 1, 0, 1)
