"""Real CuPy arrays on memx memory; on the simulated device their contents are looked at with NumPy.

CuPy brings its own runtime, which does not start on the simulated driver, so nothing here computes: `tests/gpu` does.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda.core import Device

import memx

cupy = pytest.importorskip("cupy")

MIB = 1 << 20


@pytest.fixture
def mr(oracle: None) -> Iterator[memx.MemoryResource]:
    Device(0).set_current()
    made = memx.MemoryResource(Device(0), device_limit="4MiB", host_limit=0)
    yield made
    gc.collect()
    made.native.check()
    assert made.statistics()["allocated_bytes.current"] == 0
    made.native.close()


def contents(array: Any) -> np.ndarray[Any, Any]:
    """The array's memory, as NumPy sees it."""
    return memx.sim.view((array.data.ptr, array.nbytes), array.dtype, array.shape)


def test_arrays_live_on_the_resource_and_numpy_sees_them(mr: memx.MemoryResource) -> None:
    with memx.cupy.using(mr):
        a = cupy.ndarray((64, 32), dtype="f4")
    assert mr.native.covers(a.data.ptr)
    assert a.data.device_id == 0
    assert mr.statistics()["requested_bytes.current"] == 64 * 32 * 4
    contents(a)[...] = np.arange(64 * 32).reshape(64, 32)
    row, column = a[3], a.T[5]
    assert contents(row).tolist() == list(range(96, 128))
    assert contents(a)[:, 5].tolist() == [32 * i + 5 for i in range(64)]
    assert column.data.ptr == a.data.ptr + 20
    del a, row
    gc.collect()
    assert mr.statistics()["allocated_bytes.current"] > 0  # the column keeps the memory
    del column
    gc.collect()
    assert mr.statistics()["allocated_bytes.current"] == 0


def test_what_a_kernel_wrote_is_in_the_array(mr: memx.MemoryResource) -> None:
    from cuda.bindings import driver

    with memx.cupy.using(mr):
        a = cupy.ndarray(1000, dtype="u1")
    assert not driver.cuMemsetD8(a.data.ptr, 7, a.nbytes)[0]
    assert not driver.cuCtxSynchronize()[0]
    assert (contents(a) == 7).all()


@pytest.mark.parametrize("shape", [0, (0, 5), (3, 0, 2)])
def test_empty_arrays_take_no_memory(mr: memx.MemoryResource, shape: Any) -> None:
    with memx.cupy.using(mr):
        a = cupy.ndarray(shape, dtype="f8")
    assert a.size == 0
    assert mr.statistics()["allocations"] == 0


def test_out_of_memory_is_cupys_error_with_memxs_reason(mr: memx.MemoryResource) -> None:
    with memx.cupy.using(mr):
        held = cupy.ndarray(MIB, dtype="u1")
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as caught:
            cupy.ndarray(8 * MIB, dtype="u1")
        assert isinstance(caught.value, MemoryError)
        assert f"allocating {8 * MIB:,} bytes (allocated so far: {MIB:,} bytes" in str(caught.value)
        assert isinstance(caught.value.__cause__, memx.OutOfMemoryError)
        assert cupy.ndarray(2 * MIB, dtype="u1").nbytes == 2 * MIB
    assert held.nbytes == MIB


def test_below_a_pool_out_of_memory_is_what_makes_the_pool_try_again(mr: memx.MemoryResource) -> None:
    serve = memx.cupy.allocator(mr, below_pool=True)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as caught:
        serve(8 * MIB)
    assert caught.value.status == 2
    assert serve(MIB).mem.size == MIB


def test_using_is_for_one_thread_and_one_block(mr: memx.MemoryResource) -> None:
    allocators = []
    with memx.cupy.using(mr):
        here = cupy.cuda.get_allocator()
        thread = threading.Thread(target=lambda: allocators.append(cupy.cuda.get_allocator()))
        thread.start()
        thread.join()
    assert allocators[0] is not here
    assert cupy.cuda.get_allocator() is not here


def test_an_array_dies_while_an_error_is_under_way(mr: memx.MemoryResource) -> None:
    def fail() -> None:
        with memx.cupy.using(mr):
            a = cupy.ndarray(100, dtype="u1")
        raise RuntimeError(a.nbytes)

    with pytest.raises(RuntimeError, match="100"):
        fail()


def test_a_lazy_resource_is_refused(simulated: None) -> None:
    lazy = memx.MemoryResource(Device(0), lazy=True)
    with pytest.raises(memx.InvalidValueError, match="lazy=False"):
        memx.cupy.allocator(lazy)
    lazy.native.close()


def test_enable_serves_every_array_and_once(simulated: None) -> None:
    before = cupy.cuda.get_allocator()
    try:
        memx.cupy.enable(device_limit="4MiB", host_limit=0)
        a = cupy.ndarray(1000, dtype="u1")
        assert memx.cupy.resource().native.covers(a.data.ptr)
        assert memx.cupy.resource().native.device_limit() == 4 * MIB
        with pytest.raises(memx.InvalidStateError, match="enabled already"):
            memx.cupy.enable()
    finally:
        cupy.cuda.set_allocator(before)


def test_without_enable_there_is_no_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memx.cupy._settings", None)
    with pytest.raises(memx.InvalidStateError, match=r"call memx\.cupy\.enable"):
        memx.cupy.resource()
