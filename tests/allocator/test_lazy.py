"""Lazy buffers: a promise until used, then only the pages touched; idle ones give way and come back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

Make = Callable[..., _native.Resource]
READ, WRITE, BOTH = 1, 2, 3


def stamp(r: _native.Resource, kernels: Kernels, address: int, nbytes: int, seed: int, stream: int = 0) -> None:
    token = r.begin_use([(address, 0, nbytes, WRITE)], stream)
    kernels.stamp(stream, address, nbytes, seed)
    r.end_use(token)


def verify(r: _native.Resource, kernels: Kernels, address: int, nbytes: int, seed: int, stream: int = 0) -> None:
    token = r.begin_use([(address, 0, nbytes, READ)], stream)
    kernels.verify(stream, address, nbytes, seed)
    r.end_use(token)


def test_an_allocation_takes_no_memory(resource: Make) -> None:
    r = resource(device=4, host=0, lazy=True)
    for _ in range(10):
        r.allocate(100 * PAGE)
    s = r.statistics()
    assert s["allocated_bytes.current"] == 1000 * PAGE
    assert s["reserved_bytes.peak"] == s["host_bytes.peak"] == 0


def test_only_the_pages_touched_are_backed(resource: Make) -> None:
    r = resource(device=4, host=0, lazy=True)
    a = r.allocate(100 * PAGE)
    r.end_use(r.begin_use([(a, 50 * PAGE - 1, 2, BOTH)], 0))
    assert r.statistics()["reserved_bytes.current"] == 2 * PAGE


def test_contents_survive_many_times_the_device(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=16, lazy=True)
    rng = random.Random(7)
    size = PAGE + 700
    buffers = [r.allocate(size) for _ in range(12)]
    for i, address in enumerate(buffers):
        stamp(r, kernels, address, size, i + 1 << 32)
    for _ in range(100):
        i = rng.randrange(12)
        verify(r, kernels, buffers[i], size, i + 1 << 32)
        assert r.statistics()["reserved_bytes.current"] <= 4 * PAGE
    kernels.synchronize()
    assert kernels.mismatches == 0
    s = r.statistics()
    assert s["reserved_bytes.peak"] <= 4 * PAGE
    assert s["migrated_out_bytes"] > 0
    assert s["migrated_in_bytes"] > 0


def test_the_coldest_gives_way_first(resource: Make, kernels: Kernels) -> None:
    r = resource(device=3, host=8, lazy=True)
    a, b, c, d = (r.allocate(PAGE) for _ in range(4))
    for i, address in enumerate((a, b, c)):
        stamp(r, kernels, address, PAGE, i + 1 << 32)
    verify(r, kernels, a, PAGE, 1 << 32)  # a is warmer than b now
    kernels.synchronize()
    stamp(r, kernels, d, PAGE, 9 << 32)
    kernels.synchronize()
    moved = r.statistics()["migrated_in_bytes"]
    verify(r, kernels, a, PAGE, 1 << 32)
    verify(r, kernels, c, PAGE, 3 << 32)
    assert r.statistics()["migrated_in_bytes"] == moved
    kernels.synchronize()
    verify(r, kernels, b, PAGE, 2 << 32)
    assert r.statistics()["migrated_in_bytes"] == moved + PAGE


def test_operands_larger_than_the_device_fail_at_use(resource: Make) -> None:
    r = resource(device=4, host=8, lazy=True)
    a, b = r.allocate(3 * PAGE), r.allocate(3 * PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="operands"):
        r.begin_use([(a, 0, 3 * PAGE, BOTH), (b, 0, 3 * PAGE, BOTH)], 0)
    assert r.statistics()["reserved_bytes.current"] == 0
    r.end_use(r.begin_use([(a, 0, 3 * PAGE, BOTH)], 0))


def test_a_write_of_whole_pages_brings_nothing_in(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    stamp(r, kernels, a, 2 * PAGE, 1 << 32)
    stamp(r, kernels, b, 2 * PAGE, 2 << 32)
    stamp(r, kernels, a, 2 * PAGE, 3 << 32)
    assert r.statistics()["migrated_in_bytes"] == 0
    verify(r, kernels, b, 2 * PAGE, 2 << 32)
    verify(r, kernels, a, 2 * PAGE, 3 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync", "cuMemUnmap"])
def test_what_a_use_that_fails_was_to_overwrite_is_still_there(
    resource: Make, kernels: Kernels, call: str, at: int
) -> None:
    """In the parts that came before the failure."""
    many = 48
    r = resource(device=2 * many, host=6 * many, lazy=True)
    x, y, z = (r.allocate(many * PAGE) for _ in range(3))
    w = r.allocate(many * PAGE)
    for seed, address in enumerate((x, y, z, w), 1):
        stamp(r, kernels, address, many * PAGE, seed << 32)
        kernels.synchronize()
    memx.sim.fail(call, at=at, code="NOT_PERMITTED")
    try:
        token = r.begin_use([(x, 0, many * PAGE, WRITE), (y, 0, many * PAGE, READ)], 0)
    except memx.MemxError:
        seed = 1 << 32
    else:
        seed = 5 << 32
        kernels.stamp(0, x, many * PAGE, seed)
        r.end_use(token)
    memx.sim.fail(call)
    r.check()
    out = np.empty(many * PAGE, np.uint8)
    r.read(x, 0, out)
    assert np.array_equal(out, pattern(seed, many * PAGE))
    # A part of it is used, then all of it.
    r.end_use(r.begin_use([(x, 3 * PAGE + 5, 2 * PAGE, READ)], 0))
    verify(r, kernels, x, many * PAGE, seed)
    verify(r, kernels, y, many * PAGE, 2 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


def test_what_was_freed_is_not_copied(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    stamp(r, kernels, a, 2 * PAGE, 1 << 32)
    r.free(a)
    kernels.synchronize()
    stamp(r, kernels, b, 2 * PAGE, 2 << 32)
    assert r.statistics()["migrated_out_bytes"] == 0


def test_pinned_buffers_stay(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    a, b, c = (r.allocate(PAGE) for _ in range(3))
    stamp(r, kernels, a, PAGE, 1 << 32)
    r.pin(a)
    for address in (b, c, b, c):
        stamp(r, kernels, address, PAGE, 2 << 32)
    kernels.synchronize()
    before = r.statistics()["migrated_in_bytes"]
    verify(r, kernels, a, PAGE, 1 << 32)
    assert r.statistics()["migrated_in_bytes"] == before
    r.pin(b)
    r.end_use(r.begin_use([(b, 0, PAGE, BOTH)], 0))
    with pytest.raises(memx.OutOfMemoryError):
        r.begin_use([(c, 0, PAGE, BOTH)], 0)
    r.unpin(b)
    r.unpin(a)
    with pytest.raises(memx.InvalidStateError):
        r.unpin(a)


def test_a_full_host_is_an_error_not_a_loss(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=1, lazy=True)
    a, b, c = (r.allocate(2 * PAGE) for _ in range(3))
    stamp(r, kernels, a, 2 * PAGE, 1 << 32)
    with pytest.raises(memx.OutOfMemoryError, match="host_limit"):
        stamp(r, kernels, b, 2 * PAGE, 2 << 32)
    r.check()
    verify(r, kernels, a, 2 * PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    del c


def test_reads_need_no_device_memory(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    stamp(r, kernels, a, 2 * PAGE, 1 << 32)
    stamp(r, kernels, b, 2 * PAGE, 2 << 32)
    before = r.statistics()
    out = np.empty(2 * PAGE, np.uint8)
    r.read(a, 0, out)
    assert np.array_equal(out, pattern(1 << 32, 2 * PAGE))
    after = r.statistics()
    for what in ("reserved_bytes.current", "migrated_in_bytes", "migrated_out_bytes"):
        assert after[what] == before[what]


def test_a_use_waits_for_another_threads_use_to_end(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    mine = r.begin_use([(a, 0, 2 * PAGE, BOTH)], 0)
    with pytest.raises(memx.OutOfMemoryError):
        r.begin_use([(b, 0, 2 * PAGE, BOTH)], 0)  # this thread would wait for itself
    started, done = threading.Event(), threading.Event()

    def other() -> None:
        started.set()
        r.end_use(r.begin_use([(b, 0, 2 * PAGE, BOTH)], 0))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    started.wait()
    assert not done.is_set()
    r.end_use(mine)
    thread.join()
    assert done.is_set()


def test_without_host_mapping_lazy_still_swaps(kernels: Kernels) -> None:
    memx.sim.fail("cuMemSetAccess", at=1, code="NOT_SUPPORTED")  # the probe's
    try:
        r = _native.Resource(0, 2 * PAGE, 8 * PAGE, lazy=True, page=PAGE)
    finally:
        memx.sim.fail("cuMemSetAccess")
    assert not r.host_mappable()
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    stamp(r, kernels, a, 2 * PAGE, 1 << 32)
    stamp(r, kernels, b, 2 * PAGE, 2 << 32)
    verify(r, kernels, a, 2 * PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    r.close()
    memx.sim.fail("cuMemSetAccess", at=1, code="NOT_SUPPORTED")
    try:
        r = _native.Resource(0, 2 * PAGE, 8 * PAGE, page=PAGE)
    finally:
        memx.sim.fail("cuMemSetAccess")
    r.allocate(2 * PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="lazy=True"):
        r.allocate(PAGE)
    r.close()
