"""Explicit moves beside other threads, whose buffers share the pages that move."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels, ok
from cuda.bindings import driver

from memx import _native

Make = Callable[..., _native.Resource]
ROUNDS = 300


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
