"""Simulated memory as NumPy arrays: real aliases, of many handles, at any offset, safe whatever becomes of them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from cuda.core import Device
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx import sim

from .machine import DEVICE, HOST, LEGACY, PAGE, Kernels, Range, call, isolated, pattern, properties, read, write

pytestmark = pytest.mark.usefixtures("no_races")


@pytest.mark.parametrize("kind", [DEVICE, HOST], ids=["device", "host"])
def test_what_kernels_write_is_seen_and_what_is_written_they_see(kind: Any, kernels: Kernels) -> None:
    with Range((1, 2, 1), kind) as r:
        array = sim.view((r.va, r.bytes))
        kernels("memx_stamp", LEGACY, r.va, r.bytes, 7, 0)
        call("cuCtxSynchronize")
        assert (array == pattern(r.bytes, 7)).all()
        array[:] = np.arange(r.bytes, dtype=np.uint64).astype(np.uint8)
        assert (read(r.va, r.bytes) == array).all()
        kernels("memx_fill", LEGACY, r.va + PAGE - 1, 2, 200)
        call("cuCtxSynchronize")
        assert array[PAGE - 2 : PAGE + 2].tolist() == [254, 200, 200, 1]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_part_of_any_mapping_is_that_part(data: st.DataObject) -> None:
    pages = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    with Range(pages) as r:
        start = data.draw(st.integers(0, r.bytes - 1))
        count = data.draw(st.integers(1, r.bytes - start))
        contents = np.random.default_rng(1).integers(0, 256, r.bytes, np.uint8)
        write(r.va, contents)
        array = sim.view((r.va + start, count))
        assert (array == contents[start : start + count]).all()
        array[:] = 5
        contents[start : start + count] = 5
        assert (read(r.va, r.bytes) == contents).all()


def test_handles_out_of_order_are_next_to_each_other(kernels: Kernels) -> None:
    """Where the pages are in the file does not matter."""
    with Range((), room=4) as r:
        r.handles = [call("cuMemCreate", PAGE, properties(), 0) for _ in range(4)]
        for at, handle in zip((2, 0, 3, 1), r.handles, strict=True):
            call("cuMemMap", r.va + at * PAGE, PAGE, 0, handle, 0)
        array = sim.view((r.va, 4 * PAGE), "<u4", (4, PAGE // 4))
        array[:] = np.arange(4, dtype=np.uint32)[:, None]
        alone = [sim.view((r.va + at * PAGE, PAGE), "<u4") for at in range(4)]
        assert [set(one.tolist()) for one in alone] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("make", ["cuMemAlloc", "cuMemAllocAsync", "cuMemAllocHost"])
def test_allocations_of_other_kinds(make: str) -> None:
    p = int(call(make, 5001, *([0] if make.endswith("Async") else [])))
    q = int(call("cuMemAlloc", 100))
    call("cuCtxSynchronize")
    array, other = sim.view((p + 1, 5000), "<u2"), sim.view((q, 100))
    array[:], other[:] = 0x0304, 9
    got = np.zeros(5000, np.uint8)
    call("cuMemcpy", got.ctypes.data, p + 1, 5000)
    assert (got.view("<u2") == 0x0304).all()
    assert (read(q, 100) == 9).all()
    call("cuMemFreeHost" if make.endswith("Host") else "cuMemFree", p)
    call("cuMemFree", q)
    array += 1  # still memory, and nobody else's
    assert (array == 0x0305).all()


def test_shapes_and_types() -> None:
    with Range((1,)) as r:
        kind = np.dtype([("x", "<f4"), ("y", "<i8")])
        array = sim.view((r.va, PAGE), kind, (3, 2))
        array["y"] = 7
        assert (array.shape, array.dtype, array.flags.writeable) == ((3, 2), kind, True)
        assert sim.view((r.va, PAGE), "<f8").shape == (PAGE // 8,)
        assert sim.view((r.va, 0)).shape == (0,)
        assert sim.view((r.va + 4, 8), "<i8")[0] == 7
        for memory, options in {
            (r.va, PAGE + 1): {},
            (r.va + PAGE, 1): {},
            (4096, 1): {},
            (r.va, 7): {"dtype": "<i4"},
            (r.va, 8): {"shape": 9},
            (r.va, 16): {"shape": -1},
            (r.va, 24): {"dtype": "O"},
        }.items():
            with pytest.raises(memx.InvalidValueError):
                sim.view(memory, **options)  # type: ignore[arg-type]


def test_a_hole_is_refused() -> None:
    with Range((1,), room=3) as r:
        handle = call("cuMemCreate", PAGE, properties(), 0)
        r.handles.append(handle)
        call("cuMemMap", r.va + 2 * PAGE, PAGE, 0, handle, 0)
        with pytest.raises(memx.InvalidValueError, match="a part of them has no memory"):
            sim.view((r.va, 3 * PAGE))


def test_registered_memory_is_the_programs_own() -> None:
    memory = np.zeros(8192, np.uint8)
    call("cuMemHostRegister", memory.ctypes.data, memory.nbytes, 0)
    with pytest.raises(memx.InvalidValueError, match="registered"):
        sim.view((memory.ctypes.data, 10))
    call("cuMemHostUnregister", memory.ctypes.data)


def test_what_is_freed_stays_as_it_was_and_is_not_given_out_again() -> None:
    with Range((1,), room=1) as r:
        array = sim.view((r.va, PAGE))
        array[:] = 3
        handles = sim.usage()["handles"]
        call("cuMemUnmap", r.va, PAGE)
        call("cuMemRelease", r.handles.pop())
        assert sim.usage()["handles"] == handles - 1
        r.handles.append(call("cuMemCreate", PAGE, properties(), 0))
        call("cuMemMap", r.va, PAGE, 0, r.handles[0], 0)
        fresh = sim.view((r.va, PAGE))
        fresh[:] = 8
        assert (array == 3).all()
        assert (fresh == 8).all()


def test_all_memory_can_be_had_again_when_views_are_gone() -> None:
    out = isolated(
        """
total = 64 << 20
for _ in range(40):
    p = int(call("cuMemAlloc", total))
    array = sim.view((p, total))
    array[::4096] = 1
    call("cuMemFree", p)
    part = array[5:]
    del array
    assert part[4091] == 1
    del part
print(call("cuMemGetInfo"), sum("memxsim" in line for line in open("/proc/self/maps")))
"""
    )
    assert out.startswith(f"({64 << 20}, {64 << 20})")
    assert int(out.split()[-1]) == 1


def test_buffers_of_cuda_core_and_memx(simulated: None) -> None:
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    for resource in (device.memory_resource, memx.MemoryResource(device)):
        buffer = resource.allocate(3 * PAGE + 12, stream=stream)
        stream.sync()
        array = sim.view(buffer, "<i4")
        array[:] = np.arange(array.size)
        assert (read(int(buffer.handle), buffer.size).view("<i4") == np.arange(array.size)).all()
        address = int(buffer.handle)
        del buffer
        gc.collect()
        assert (sim.view((address, 4), "<i4") == 0).all(), "the array keeps the buffer"
        del array
        gc.collect()
        stream.sync()
    del resource
    gc.collect()


def test_without_contents_there_is_nothing_to_see() -> None:
    out = isolated(
        """
try:
    sim.view((int(call("cuMemAlloc", 8)), 8))
except memx.InvalidValueError as error:
    print(error)
""",
        accounting_only=True,
    )
    assert "accounting_only" in out


def test_a_view_may_outlive_the_interpreter() -> None:
    out = isolated("sim.kept = sim.view((int(call('cuMemAlloc', 8)), 8)); sim.kept[:] = 1; print(sim.kept.sum())")
    assert out == "8\n"
