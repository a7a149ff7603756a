"""Explicit moves beside other threads, whose buffers share the pages that move."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels, ok
from cuda.bindings import driver

import memx
from memx import _native

Make = Callable[..., _native.Resource]
ROUNDS = 300
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.mark.parametrize("trims", [False, True])
def test_other_threads_allocate_on_the_rest_of_a_page_that_moves(
    resource: Make, kernels: Kernels, streams: list[int], trims: bool
) -> None:
    r = resource(device=32, host=64)
    moved = r.allocate(PAGE + 512)
    seed = 1 << 40
    kernels.stamp(0, moved, PAGE + 512, seed)
    over = threading.Event()
    surprises: list[BaseException] = []

    def watched(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                ok(driver.cuCtxSetCurrent(kernels.context))
                work()
            except BaseException as error:
                surprises.append(error)
                over.set()

        return run

    def use(stream: int) -> None:
        count = stream & 0xFFFF
        while not over.is_set():
            count += 1
            address = r.allocate(3000, stream)
            kernels.stamp(stream, address, 3000, count << 32 | 7)
            kernels.verify(stream, address, 3000, count << 32 | 7)
            r.free(address)

    def trim() -> None:
        while not over.is_set():
            r.trim()

    works = [lambda: use(streams[0]), lambda: use(streams[1]), *([trim] if trims else [])]
    threads = [threading.Thread(target=watched(work)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(ROUNDS):
            r.evict(moved)
            r.prefetch(moved, 0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert surprises == []
    kernels.verify(0, moved, PAGE + 512, seed)
    kernels.synchronize()
    assert kernels.mismatches == 0
    r.check()


def test_an_eviction_sees_uses_that_began_while_it_waited_for_others(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=8, host=8, lazy=True)
    address, (s1, s2) = r.allocate(2 * PAGE, streams[0]), streams
    gates = {stream: threading.Event() for stream in streams}
    callbacks = [HOST_FUNCTION(lambda _, gate=gate: gate.wait(30) and None) for gate in gates.values()]

    def block(stream: int) -> None:
        callback = ctypes.cast(callbacks[streams.index(stream)], ctypes.c_void_p).value
        ok(driver.cuLaunchHostFunc(stream, driver.CUhostFn(callback), 0))

    def stamp(page: int, stream: int, seed: int) -> None:  # each page a handle of its own
        token = r.begin_use([(address, page * PAGE, PAGE, 2)], stream)
        kernels.stamp(stream, address + page * PAGE, PAGE, seed)
        r.end_use(token)

    def until_it_waits(times: int) -> None:
        while evicting.is_alive() and memx.sim.calls().get("cuEventSynchronize", 0) < before + times:
            pass

    stamp(0, s1, 1 << 32)
    kernels.synchronize()
    block(s2)
    stamp(1, s2, 2 << 32)
    before = memx.sim.calls().get("cuEventSynchronize", 0)
    evicting = threading.Thread(target=r.evict, args=(address,))
    evicting.start()
    until_it_waits(1)
    block(s1)
    stamp(0, s1, 3 << 32)
    gates[s2].set()
    until_it_waits(2)
    assert evicting.is_alive()
    gates[s1].set()
    evicting.join()
    assert r.trim(0) >= 2 * PAGE
    for page, seed in enumerate((3 << 32, 2 << 32)):
        token = r.begin_use([(address, page * PAGE, PAGE, 1)], s1)
        kernels.verify(s1, address + page * PAGE, PAGE, seed)
        r.end_use(token)
    kernels.synchronize()
    assert (kernels.mismatches, memx.sim.races()) == (0, [])


def test_an_eviction_leaves_a_page_alone_that_a_failed_arrival_left_behind(
    resource: Make, kernels: Kernels, streams: list[int]
) -> None:
    r = resource(device=8, host=8, lazy=True)
    address, stream, seed = r.allocate(PAGE, streams[0]), streams[0], 1 << 32
    token = r.begin_use([(address, 0, PAGE, 2)], stream)
    kernels.stamp(stream, address, PAGE, seed)
    r.end_use(token)
    r.evict(address)
    memx.sim.fail("cuMemSetAccess", at=1)
    memx.sim.fail("cuMemUnmap", at=1)
    with pytest.raises(memx.OutOfMemoryError):
        r.begin_use([(address, 0, PAGE, 1)], stream)
    r.evict(address)
    r.check()
    token = r.begin_use([(address, 0, PAGE, 1)], stream)
    kernels.verify(stream, address, PAGE, seed)
    r.end_use(token)
    kernels.synchronize()
    assert (kernels.mismatches, memx.sim.races()) == (0, [])
