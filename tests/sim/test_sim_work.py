"""Copies, fills and kernels: contents by arithmetic, kinds of memory, addresses that fail."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

from memx import sim

from .conftest import Streams
from .machine import HOST, PAGE, Kernels, Range, call, code, isolated, pattern, read, write

pytestmark = pytest.mark.usefixtures("clean")


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, 2 * PAGE),
    count=st.integers(0, PAGE),
    seed=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**40),
)
def test_the_pattern(kernels: Kernels, start: int, count: int, seed: int, offset: int) -> None:
    with Range((1, 1, 1)) as r:
        kernels("memx_fill", 0, r.va, r.bytes, 0x1AB)
        kernels("memx_stamp", 0, r.va + start, count, seed, offset)
        got = read(r.va, r.bytes)
        assert (got[start : start + count] == pattern(count, seed, offset)).all()
        assert (got[:start] == 0xAB).all()
        assert (got[start + count :] == 0xAB).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_verify_counts_the_bytes_that_differ(kernels: Kernels, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 2 * PAGE))
    wrong = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(1, 255), max_size=20))
    counter = call("cuMemAlloc", 8)
    with Range((1, 1)) as r:
        call("cuMemsetD32", counter, 0, 2)
        bytes_ = pattern(count, 99, 3)
        for at, change in wrong.items():
            bytes_[at] ^= change
        write(r.va, bytes_)
        kernels("memx_verify", 0, r.va, count, 99, 3, int(counter))
        kernels("memx_verify", 0, r.va, count, 99, 3, int(counter))
        assert int(read(int(counter), 8).view(np.uint64)[0]) == 2 * len(wrong)
    call("cuMemFree", counter)


def test_axpy_and_copy_across_handles(kernels: Kernels) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(PAGE // 2, np.float32) for _ in range(2))
    with Range((1, 1)) as a, Range((2,)) as b:
        write(a.va, x)
        write(b.va, y)
        kernels("memx_axpy", 0, b.va, a.va, 0.5, len(x))
        kernels("memx_copy", 0, a.va + 4, b.va, 4 * len(x) - 4)
        expected = y + np.float32(0.5) * x
        assert (read(b.va, y.nbytes).view(np.float32) == expected).all()
        assert (read(a.va + 4, y.nbytes - 4).view(np.float32) == expected[:-1]).all()


def test_unknown_kernels_do_nothing_and_are_counted(kernels: Kernels) -> None:
    before = sim.calls().get("kernel:unheard_of", 0)
    kernels("unheard_of", 0)
    kernels("unheard_of", 0)
    assert sim.calls()["kernel:unheard_of"] == before + 2


def test_fills_of_each_width() -> None:
    with Range((1, 1)) as r:
        call("cuMemsetD8", r.va, 0, r.bytes)
        call("cuMemsetD16", r.va + PAGE - 4, 0x1234, 4)
        call("cuMemsetD32", r.va + 8, 0x01020304, 2)
        call("cuMemsetD2D8", r.va + 64, 16, 7, 3, 4)
        got = read(r.va, r.bytes)
        assert (got[PAGE - 4 : PAGE + 4].view(np.uint16) == 0x1234).all()
        assert (got[8:16].view(np.uint32) == 0x01020304).all()
        assert got[64:128].reshape(4, 16).sum(axis=0).tolist() == [28] * 3 + [0] * 13
        assert code("cuMemsetD32", r.va + 2, 0, 1) == "INVALID_VALUE"
        assert code("cuMemsetD2D8", r.va, 2, 0, 3, 4) == "INVALID_VALUE"


def test_two_dimensional_copies() -> None:
    source = np.arange(40, dtype=np.uint8).reshape(5, 8)
    target = np.zeros((5, 10), np.uint8)
    with Range((1,)) as r:
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch, copy.srcXInBytes = source.ctypes.data, 8, 2
        copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = r.va, 32
        copy.WidthInBytes, copy.Height = 6, 5
        call("cuMemcpy2D", copy)
        back = driver.CUDA_MEMCPY2D()
        back.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        back.srcDevice, back.srcPitch = r.va, 32
        back.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        back.dstHost, back.dstPitch, back.dstXInBytes = target.ctypes.data, 10, 3
        back.WidthInBytes, back.Height = 6, 5
        call("cuMemcpy2D", back)
        back.dstPitch = 8
        assert code("cuMemcpy2D", back) == "INVALID_VALUE"
    assert (target[:, 3:9] == source[:, 2:]).all()
    assert target[:, :3].sum() == 0


def test_copy_kinds_must_fit_where_memory_is() -> None:
    host = np.zeros(64, np.uint8)
    at = host.ctypes.data
    with Range((1,)) as r, Range((1,), HOST) as h:
        assert code("cuMemcpyHtoD", at, at, 8) == "INVALID_VALUE"
        assert code("cuMemcpyDtoH", at, at, 8) == "INVALID_VALUE"
        assert code("cuMemcpyHtoD", r.va, r.va, 8) == "INVALID_VALUE"
        assert code("cuMemcpyDtoH", r.va, r.va, 8) == "INVALID_VALUE"
        assert code("cuMemcpyDtoD", r.va, at, 8) == "INVALID_VALUE"
        assert code("cuMemcpyHtoD", r.va, h.va, 8) == "INVALID_VALUE"  # no host access was given
        assert code("cuMemcpyHtoD", r.va + PAGE - 4, at, 8) == "INVALID_VALUE"
        call("cuMemcpyDtoD", h.va, r.va, PAGE)
        call("cuMemcpy", r.va, at, 64)
        call("cuMemcpy", at, h.va, 64)


def test_gather_touches_what_its_table_says(kernels: Kernels, streams: Streams) -> None:
    stream = streams.nonblocking()
    with Range((1, 1, 1)) as r:
        write(r.va, np.array([r.va + PAGE, r.va + 2 * PAGE], np.uint64))
        kernels("memx_gather", stream, r.va, 2, PAGE, 1)
        call("cuStreamSynchronize", stream)


STICKY = {
    "unmapped": "r = Range((), room=2); kernels('memx_touch', s, r.va, 1, 0)",
    "past the end": "r = Range((1,), room=2); kernels('memx_touch', s, r.va + PAGE - 1, 2, 0)",
    "no access": "r = Range((1,), grant=False); kernels('memx_touch', s, r.va, 1, 0)",
    "null": "kernels('memx_fill', s, 0, 1, 1)",
    "read only": """
r = Range((1,), grant=False)
call('cuMemSetAccess', r.va, PAGE, [access(flags=READ)], 1)
kernels('memx_touch', s, r.va, PAGE, 0); call('cuStreamSynchronize', s)
kernels('memx_touch', s, r.va, PAGE, 1)""",
    "another device's": """
r = Range((), room=1)
h = call('cuMemCreate', PAGE, properties(DEVICE, 1), 0); call('cuMemMap', r.va, PAGE, 0, h, 0)
call('cuMemSetAccess', r.va, PAGE, [access(DEVICE, 1)], 1)
kernels('memx_touch', s, r.va, PAGE, 0)""",
    "past an allocation": "p = int(call('cuMemAlloc', 512)); kernels('memx_touch', s, p, 513, 0)",
    "freed in order": """
p = int(call('cuMemAllocAsync', 512, s)); call('cuMemFreeAsync', p, s)
kernels('memx_touch', s, p, 512, 0)""",
    "gathered": """
r = Range((1,), room=2)
write(r.va, np.array([r.va, r.va + PAGE], np.uint64))
kernels('memx_gather', s, r.va, 2, 8, 0)""",
    "a copy": """
r = Range((1,), grant=False)
call('cuMemcpyDtoDAsync', r.va, r.va + 64, 64, s)""",
    "unmapped while queued": """
r = Range((1,))
sim.hold(s)
kernels('memx_touch', s, r.va, PAGE, 1)
call('cuMemUnmap', r.va, PAGE)
sim.release(s)""",
}


@pytest.mark.parametrize("how", STICKY)
def test_a_bad_address_fails_the_context_for_good(how: str) -> None:
    out = isolated(
        "s = call('cuStreamCreate', NON_BLOCKING)\n"
        + STICKY[how]
        + """
print(code("cuStreamSynchronize", s))
print(code("cuStreamQuery", s), code("cuCtxSynchronize"), code("cuMemAlloc", 8), code("cuEventCreate", 0))
print(kernels.code("memx_touch", s, 0, 0, 0), code("cuMemCreate", PAGE, properties(), 0))
print(code("cuCtxGetCurrent"), code("cuDriverGetVersion"))
call("cuDevicePrimaryCtxReset", 0)
set_current()
print(code("cuMemAlloc", 8))
""",
        devices=2,
    )
    bad = "ILLEGAL_ADDRESS"
    assert out == f"{bad}\n{bad} {bad} {bad} {bad}\n{bad} {bad}\nSUCCESS SUCCESS\nSUCCESS\n"


def test_pool_allocations_come_and_go_in_stream_order() -> None:
    out = isolated(
        """
s = call("cuStreamCreate", NON_BLOCKING)
p = int(call("cuMemAllocAsync", 1 << 20, s))
kernels("memx_stamp", s, p, 1 << 20, 1, 0)
sim.hold(s)
call("cuMemFreeAsync", p, s)
print(code("cuMemFreeAsync", p, s), sim.usage()["device_bytes"])
call("cuStreamSynchronize", s)
print(sim.usage()["device_bytes"], sim.races())
sim.hold(s)
p = call("cuMemAllocAsync", 40 << 20, s)
call("cuMemFreeAsync", p, s)
q = call("cuMemAllocAsync", 40 << 20, s)
print(code("cuMemAllocAsync", 40 << 20, s))
"""
    )
    assert out == f"INVALID_VALUE [{1 << 20}]\n[0] []\nOUT_OF_MEMORY\n"


def test_cuda_core_works_on_it() -> None:
    out = isolated(
        """
from cuda.core import Device, LegacyPinnedMemoryResource, VirtualMemoryResource
device = Device(0)
device.set_current()
stream, other = device.create_stream(), device.create_stream()
event = stream.record()
other.wait(event)
event.sync()
buffer = device.memory_resource.allocate(PAGE, stream=stream)
pinned = LegacyPinnedMemoryResource().allocate(PAGE, stream=stream)
view = np.from_dlpack(pinned).view(np.uint8)
view[:] = np.arange(PAGE, dtype=np.uint8)
buffer.copy_from(pinned, stream=stream)
stream.sync()
view[:] = 0
pinned.copy_from(buffer, stream=stream)
stream.sync()
print(device.name, (view == np.arange(PAGE, dtype=np.uint8)).all(), sim.races())
virtual = VirtualMemoryResource(device).allocate(3 * PAGE)
virtual.close()
buffer.close(stream)
pinned.close(stream)
device.sync()
"""
    )
    assert out == "memx simulated device True []\n"
