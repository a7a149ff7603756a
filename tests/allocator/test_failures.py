"""Any driver call may fail at any point: nothing that lives is lost, and the error says what failed."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

Make = Callable[..., _native.Resource]
COUNTERS = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "host_bytes")


def counters(r: _native.Resource) -> list[int]:
    s = r.statistics()
    return [s[f"{name}.current"] for name in COUNTERS]


@pytest.mark.parametrize("code", ["OUT_OF_MEMORY", "NOT_PERMITTED"])
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_failed_allocation_gives_back_all_it_took(
    resource: Make, kernels: Kernels, call: str, code: str, lazy: bool
) -> None:
    r = resource(device=32, host=0, lazy=lazy)
    keeper = r.allocate(PAGE + 512)
    r.end_use(r.begin_use([(keeper, 0, PAGE + 512, 2)], 0))
    kernels.stamp(0, keeper, PAGE + 512, 1 << 32)
    kernels.synchronize()
    error = memx.OutOfMemoryError if code == "OUT_OF_MEMORY" else memx.MemxError
    for at in itertools.count(1):
        before = counters(r)
        address = r.allocate(15 * PAGE) if lazy else 0
        memx.sim.fail(call, at=at, code=code)
        failed = False
        try:
            if lazy:
                r.end_use(r.begin_use([(address, 0, 15 * PAGE, 3)], 0))
            else:
                address = r.allocate(15 * PAGE)
        except error as caught:
            failed = True
            assert str(caught)
        memx.sim.fail(call)
        r.check()
        if lazy and failed:
            r.free(address)
        if not failed:
            break
        assert counters(r) == before
    assert at > 1
    kernels.verify(0, keeper, PAGE + 512, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_the_addresses_of_a_failed_allocation_serve_the_next(resource: Make, call: str) -> None:
    r = resource(device=16, host=0)
    first = r.allocate(PAGE)
    memx.sim.fail(call, at=1, code="OUT_OF_MEMORY")
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(3 * PAGE)
    assert r.allocate(3 * PAGE) == first + PAGE


@pytest.mark.parametrize(
    "call",
    [
        "cuMemUnmap",
        "cuMemHostAlloc",
        "cuMemcpyDtoHAsync",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemcpyHtoDAsync",
    ],
)
def test_contents_survive_a_failure_at_every_call_of_a_swap(resource: Make, kernels: Kernels, call: str) -> None:
    r = resource(device=8, host=32, lazy=True)
    buffers = [r.allocate(8 * PAGE) for _ in range(3)]

    def use(i: int) -> None:
        token = r.begin_use([(buffers[i], 0, 8 * PAGE, 3)], 0)
        kernels.verify(0, buffers[i], 8 * PAGE, i + 1 << 32)
        r.end_use(token)

    for i, address in enumerate(buffers):
        token = r.begin_use([(address, 0, 8 * PAGE, 2)], 0)
        kernels.stamp(0, address, 8 * PAGE, i + 1 << 32)
        r.end_use(token)
    kernels.synchronize()
    failures = 0
    for at in range(1, 12):
        memx.sim.fail(call, at=at, code="OUT_OF_MEMORY")
        try:
            use(at % 3)
        except memx.MemxError as error:
            failures += 1
            assert str(error)
        memx.sim.fail(call)
        r.check()
        kernels.synchronize()
        for i in range(3):
            use(i)
            kernels.synchronize()
    assert failures
    assert kernels.mismatches == 0


@pytest.mark.parametrize(
    "call",
    ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync", "cuMemUnmap", "cuStreamSynchronize"],
)
def test_contents_survive_a_failure_at_every_call_of_a_move(resource: Make, kernels: Kernels, call: str) -> None:
    r = resource(device=16, host=16)
    a = r.allocate(7 * PAGE)
    kernels.stamp(0, a, 7 * PAGE, 1 << 32)
    kernels.synchronize()
    for at in range(1, 9):
        for move in (r.evict, lambda address: r.prefetch(address, 0)):
            memx.sim.fail(call, at=at, code="OUT_OF_MEMORY")
            try:
                move(a)
            except memx.MemxError as error:
                assert str(error)
            memx.sim.fail(call)
            r.check()
            out = np.empty(7 * PAGE, np.uint8)
            r.read(a, 0, out)
            assert np.array_equal(out, pattern(1 << 32, 7 * PAGE))
            kernels.verify(0, a, 7 * PAGE, 1 << 32)
            kernels.synchronize()
    assert kernels.mismatches == 0


def test_a_rollback_that_fails_keeps_the_pages_accounted_for(resource: Make, kernels: Kernels) -> None:
    r = resource(device=16, host=0)
    memx.sim.fail("cuMemSetAccess", at=1, code="OUT_OF_MEMORY")
    memx.sim.fail("cuMemUnmap", at=1, code="NOT_PERMITTED")
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(3 * PAGE)
    memx.sim.fail("cuMemSetAccess")
    memx.sim.fail("cuMemUnmap")
    r.check()
    assert r.statistics()["reserved_bytes.current"] == 2 * PAGE
    a = r.allocate(10 * PAGE)
    kernels.stamp(0, a, 10 * PAGE, 1 << 32)
    r.free(a)
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0


def test_failures_while_trimming_lose_nothing(resource: Make, kernels: Kernels) -> None:
    r = resource(device=16, host=0)
    r.free(r.allocate(15 * PAGE))
    kernels.synchronize()
    for call in ("cuMemUnmap", "cuMemRelease"):
        memx.sim.fail(call, at=2, code="NOT_PERMITTED")
        r.trim(8 * PAGE)
        memx.sim.fail(call)
        r.check()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0
