"""Reservations, handles, mappings, access: every documented error, and contents that alias."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver

from memx import sim

from .machine import (
    DEVICE,
    HOST,
    HOST_NUMA,
    HOST_NUMA_CURRENT,
    NO_ACCESS,
    PAGE,
    READ,
    Kernels,
    Range,
    access,
    call,
    code,
    isolated,
    pattern,
    properties,
    read,
    write,
)

pytestmark = pytest.mark.usefixtures("no_races")


@pytest.mark.parametrize("alignment", [0, PAGE, 1 << 21, 1 << 30])
@pytest.mark.parametrize("size", [PAGE, 3 * PAGE, 1 << 40, 1 << 42])
def test_reservations_of_any_size_are_aligned(size: int, alignment: int) -> None:
    va = int(call("cuMemAddressReserve", size, alignment, 0, 0))
    assert va % max(alignment, PAGE) == 0
    assert code("cuMemAddressFree", va, size - PAGE if size > PAGE else 2 * PAGE) == "INVALID_VALUE"
    assert code("cuMemAddressFree", va + PAGE, size) == "INVALID_VALUE"
    call("cuMemAddressFree", va, size)
    assert code("cuMemAddressFree", va, size) == "INVALID_VALUE"


def test_a_free_address_that_is_asked_for_is_given() -> None:
    va = int(call("cuMemAddressReserve", 1 << 30, 1 << 21, 0, 0))
    call("cuMemAddressFree", va, 1 << 30)
    again = int(call("cuMemAddressReserve", 1 << 30, 1 << 21, va, 0))
    assert again == va
    other = int(call("cuMemAddressReserve", PAGE, 0, va, 0))
    assert not va <= other < va + (1 << 30)
    call("cuMemAddressFree", va, 1 << 30)
    call("cuMemAddressFree", other, PAGE)


@pytest.mark.parametrize(
    ("size", "alignment", "flags"), [(0, 0, 0), (PAGE + 1, 0, 0), (PAGE // 2, 0, 0), (PAGE, 3, 0), (PAGE, 0, 1)]
)
def test_bad_reservations_are_refused(size: int, alignment: int, flags: int) -> None:
    assert code("cuMemAddressReserve", size, alignment, 0, flags) == "INVALID_VALUE"


@pytest.mark.parametrize(
    ("size", "kind", "number", "flags", "expected"),
    [
        (0, DEVICE, 0, 0, "INVALID_VALUE"),
        (PAGE + 4096, DEVICE, 0, 0, "INVALID_VALUE"),
        (PAGE, DEVICE, 0, 1, "INVALID_VALUE"),
        (PAGE, DEVICE, 2, 0, "INVALID_DEVICE"),
        (PAGE, DEVICE, -1, 0, "INVALID_DEVICE"),
        (PAGE, HOST_NUMA, 1, 0, "INVALID_DEVICE"),
        (PAGE, HOST_NUMA_CURRENT, 0, 0, "INVALID_VALUE"),
        (2 << 30, DEVICE, 0, 0, "OUT_OF_MEMORY"),
        (8 << 30, HOST, 0, 0, "OUT_OF_MEMORY"),
        ((1 << 64) - PAGE, DEVICE, 0, 0, "OUT_OF_MEMORY"),
    ],
)
def test_bad_handles_are_refused(size: int, kind: object, number: int, flags: int, expected: str) -> None:
    assert code("cuMemCreate", size, properties(kind, number), flags) == expected


def test_host_handles_cannot_be_shared_between_processes() -> None:
    prop = properties(HOST_NUMA)
    prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    assert code("cuMemCreate", PAGE, prop, 0) == "INVALID_VALUE"


def test_memory_is_limited_per_location() -> None:
    free, total = call("cuMemGetInfo")
    assert total == 1 << 30
    rest = free // PAGE * PAGE
    handle = call("cuMemCreate", rest, properties(), 0)
    assert call("cuMemGetInfo")[0] == free - rest
    assert code("cuMemCreate", PAGE, properties(), 0) == "OUT_OF_MEMORY"
    other = call("cuMemCreate", PAGE, properties(DEVICE, 1), 0)
    host = call("cuMemCreate", PAGE, properties(HOST), 0)
    call("cuMemRelease", handle)
    call("cuMemRelease", call("cuMemCreate", PAGE, properties(), 0))
    call("cuMemRelease", other)
    call("cuMemRelease", host)


def test_mapping_errors() -> None:
    with Range((2,), room=8) as r:
        (handle,) = r.handles
        small = call("cuMemCreate", PAGE, properties(), 0)
        assert code("cuMemMap", r.va + 4 * PAGE, PAGE, PAGE, handle, 0) == "INVALID_VALUE"  # an offset
        assert code("cuMemMap", r.va + 4 * PAGE, PAGE, 0, handle, 1) == "INVALID_VALUE"
        assert code("cuMemMap", r.va + 4 * PAGE + 4096, PAGE, 0, small, 0) == "INVALID_VALUE"
        assert code("cuMemMap", r.va + 4 * PAGE, 4096, 0, small, 0) == "INVALID_VALUE"
        assert code("cuMemMap", r.va + 4 * PAGE, 2 * PAGE, 0, small, 0) == "INVALID_VALUE"  # larger than it is
        assert code("cuMemMap", r.va + PAGE, PAGE, 0, small, 0) == "INVALID_VALUE"  # over a mapping
        assert code("cuMemMap", r.va + 7 * PAGE, 2 * PAGE, 0, handle, 0) == "INVALID_VALUE"  # out of it
        assert code("cuMemMap", r.va + r.reserved, PAGE, 0, small, 0) == "INVALID_VALUE"
        call("cuMemRelease", small)
        assert code("cuMemRelease", small) == "INVALID_VALUE"
        assert code("cuMemMap", r.va + 4 * PAGE, PAGE, 0, small, 0) == "INVALID_VALUE"  # released
        assert code("cuMemUnmap", r.va, PAGE) == "INVALID_VALUE"  # a part
        assert code("cuMemUnmap", r.va + PAGE, PAGE) == "INVALID_VALUE"
        assert code("cuMemUnmap", r.va, 3 * PAGE) == "INVALID_VALUE"  # more than is mapped
        assert code("cuMemUnmap", r.va + 5 * PAGE, PAGE) == "INVALID_VALUE"  # nothing
        assert code("cuMemUnmap", r.va, 0) == "INVALID_VALUE"
        assert code("cuMemAddressFree", r.va, r.reserved) == "INVALID_VALUE"  # still mapped
        call("cuMemUnmap", r.va, 2 * PAGE)
        assert code("cuMemUnmap", r.va, 2 * PAGE) == "INVALID_VALUE"


def test_one_unmap_covers_several_whole_mappings() -> None:
    with Range((1, 2, 4)) as r:
        assert code("cuMemUnmap", r.va, 2 * PAGE) == "INVALID_VALUE"
        call("cuMemUnmap", r.va + PAGE, 6 * PAGE)
        call("cuMemUnmap", r.va, PAGE)


def test_access_is_for_whole_mapped_ranges_and_kinds_that_exist() -> None:
    with Range((2, 1), grant=False, room=5) as r:
        assert code("cuMemSetAccess", r.va, 4 * PAGE, [access()], 1) == "INVALID_VALUE"
        assert code("cuMemSetAccess", r.va, PAGE, [access()], 1) == "INVALID_VALUE"
        assert code("cuMemSetAccess", r.va + 3 * PAGE, PAGE, [access()], 1) == "INVALID_VALUE"
        assert code("cuMemSetAccess", r.va, 3 * PAGE, [access(HOST)], 1) == "INVALID_VALUE"
        assert code("cuMemSetAccess", r.va, 3 * PAGE, [access(HOST_NUMA)], 1) == "INVALID_VALUE"
        assert code("cuMemSetAccess", r.va, 3 * PAGE, [access(DEVICE, 9)], 1) == "INVALID_DEVICE"
        assert call("cuMemGetAccess", access().location, r.va) == 0
        call("cuMemSetAccess", r.va, 3 * PAGE, [access(), access(DEVICE, 1, READ)], 2)
        assert call("cuMemGetAccess", access().location, r.va + 2 * PAGE) == 3
        assert call("cuMemGetAccess", access(DEVICE, 1).location, r.va) == 1
        assert code("cuMemGetAccess", access().location, r.va + 3 * PAGE) == "INVALID_VALUE"
        call("cuMemSetAccess", r.va, 3 * PAGE, [access(flags=NO_ACCESS)], 1)
        assert call("cuMemGetAccess", access().location, r.va) == 0


def test_a_refused_access_changes_nothing() -> None:
    with Range((1, 1), HOST, grant=False, room=2) as r:
        descs = [access(), access(DEVICE, 7)]
        assert code("cuMemSetAccess", r.va, 2 * PAGE, descs, 2) == "INVALID_DEVICE"
        assert call("cuMemGetAccess", access().location, r.va) == 0


def test_two_addresses_of_one_handle_are_one_memory(kernels: Kernels) -> None:
    with Range((1,)) as a, Range((), room=1) as b:
        call("cuMemMap", b.va, PAGE, 0, a.handles[0], 0)
        call("cuMemSetAccess", b.va, PAGE, [access()], 1)
        kernels("memx_stamp", LEGACY_STREAM, a.va, PAGE, 7 << 32 | 5, 0)
        assert (read(b.va, PAGE) == pattern(PAGE, 7 << 32 | 5)).all()


LEGACY_STREAM = 0


def test_contents_follow_the_handle_to_another_address() -> None:
    data = np.random.default_rng(0).integers(0, 256, PAGE, np.uint8)
    with Range((1,), room=2) as r:
        write(r.va, data)
        call("cuMemUnmap", r.va, PAGE)
        call("cuMemMap", r.va + PAGE, PAGE, 0, r.handles[0], 0)
        call("cuMemSetAccess", r.va + PAGE, PAGE, [access()], 1)
        assert (read(r.va + PAGE, PAGE) == data).all()


def test_released_memory_lives_until_its_last_mapping_goes() -> None:
    used = sim.usage()["device_bytes"][0]
    with Range((1,)) as r:
        write(r.va, np.full(PAGE, 9, np.uint8))
        call("cuMemRelease", r.handles[0])
        assert sim.usage()["device_bytes"][0] == used + PAGE
        assert (read(r.va, PAGE) == 9).all()
        kept = call("cuMemRetainAllocationHandle", r.va + 5)
        assert int(kept) == int(r.handles[0])
        call("cuMemUnmap", r.va, PAGE)
        assert sim.usage()["device_bytes"][0] == used + PAGE
        call("cuMemRelease", kept)
        assert sim.usage()["device_bytes"][0] == used
        assert code("cuMemRetainAllocationHandle", r.va) == "INVALID_VALUE"


def test_properties_come_back_from_a_handle() -> None:
    handle = call("cuMemCreate", PAGE, properties(HOST_NUMA), 0)
    prop = call("cuMemGetAllocationPropertiesFromHandle", handle)
    assert prop.location.type == HOST_NUMA
    call("cuMemRelease", handle)


def test_host_memory_is_shared_with_the_processor() -> None:
    with Range((1, 1), HOST) as r:
        call("cuMemSetAccess", r.va, 2 * PAGE, [access(HOST)], 1)
        view = np.frombuffer((ctypes.c_uint8 * (2 * PAGE)).from_address(r.va), np.uint8)
        view[:] = 3
        assert (read(r.va, 2 * PAGE) == 3).all()
        call("cuMemsetD8", r.va + PAGE - 2, 4, 4)
        call("cuCtxSynchronize")
        assert view[PAGE - 3 : PAGE + 3].tolist() == [3, 4, 4, 4, 4, 3]


def test_device_memory_is_out_of_the_processors_reach() -> None:
    out = isolated(
        """
import resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
r = Range((1,))
child = os.fork()
if child == 0:
    ctypes.memset(r.va, 1, 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV)
"""
    )
    assert out == "True\n"


def test_address_range_is_one_handles_extent() -> None:
    with Range((1, 2)) as r:
        assert tuple(map(int, call("cuMemGetAddressRange", r.va + 2 * PAGE))) == (r.va + PAGE, 2 * PAGE)
        assert code("cuMemGetAddressRange", r.va + 3 * PAGE) == "NOT_FOUND"


def test_pointer_attributes_say_where_memory_is() -> None:
    kinds = driver.CUpointer_attribute
    where = kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with Range((1,)) as device, Range((1,), HOST) as host:
        assert int(call("cuPointerGetAttribute", where, device.va)) == 2
        assert int(call("cuPointerGetAttribute", where, host.va)) == 1
    pinned = call("cuMemAllocHost", 100)
    assert int(call("cuPointerGetAttribute", where, int(pinned))) == 1
    call("cuMemFreeHost", pinned)
    assert code("cuPointerGetAttribute", where, 4096) == "INVALID_VALUE"


def test_plain_allocations() -> None:
    used = sim.usage()["device_bytes"][0]
    a, b = int(call("cuMemAlloc", 5)), int(call("cuMemAlloc", PAGE))
    assert a % 256 == 0
    assert b % 256 == 0
    assert tuple(map(int, call("cuMemGetAddressRange", a + 4))) == (a, 5)
    assert code("cuMemsetD8", a, 0, 6) == "INVALID_VALUE"
    assert code("cuMemFree", a + 1) == "INVALID_VALUE"
    assert code("cuMemUnmap", b, PAGE) == "INVALID_VALUE"
    call("cuMemFree", a)
    assert code("cuMemFree", a) == "INVALID_VALUE"
    call("cuMemFree", b)
    assert code("cuMemAlloc", 0) == "INVALID_VALUE"
    assert code("cuMemAlloc", 2 << 30) == "OUT_OF_MEMORY"
    assert sim.usage()["device_bytes"][0] == used


def test_registered_host_memory() -> None:
    memory = np.zeros(10000, np.uint8)
    at = memory.ctypes.data
    call("cuMemHostRegister", at, 10000, 0)
    assert code("cuMemHostRegister", at + 5000, 10000, 0) == "HOST_MEMORY_ALREADY_REGISTERED"
    assert int(call("cuMemHostGetDevicePointer", at, 0)) == at
    call("cuMemsetD8", at + 1, 7, 3)
    call("cuCtxSynchronize")
    assert memory[:6].tolist() == [0, 7, 7, 7, 0, 0]
    call("cuMemHostUnregister", at)
    assert code("cuMemHostUnregister", at) == "HOST_MEMORY_NOT_REGISTERED"


def test_old_drivers_map_no_host_memory() -> None:
    out = isolated(
        """
print(code("cuMemCreate", PAGE, properties(HOST), 0), code("cuMemCreate", PAGE, properties(HOST_NUMA), 0))
print(call("cuDriverGetVersion"))
""",
        host_mappable=False,
        driver_version=12020,
    )
    assert out == "NOT_SUPPORTED NOT_SUPPORTED\n12020\n"


def test_accounting_only_has_limits_and_errors_but_no_contents() -> None:
    out = isolated(
        """
prop = properties()
handles = [call("cuMemCreate", 1 << 30, prop, 0) for _ in range(64)]
print(code("cuMemCreate", 1 << 30, prop, 0))
va = int(call("cuMemAddressReserve", 1 << 40, 0, 0, 0))
for i in range(200_000):
    call("cuMemMap", va + i * PAGE, PAGE, 0, handles[0], 0)
call("cuMemSetAccess", va, 200_000 * PAGE, [access()], 1)
kernels("memx_stamp", 0, va, 1 << 33, 1, 0)
call("cuCtxSynchronize")
print(code("cuMemUnmap", va, 1 << 33), sim.races())
kernels("memx_touch", 0, va + (1 << 35), 1, 0)
print(code("cuCtxSynchronize"))
""",
        memory="64GiB",
        accounting_only=True,
    )
    assert out == "OUT_OF_MEMORY\nSUCCESS []\nILLEGAL_ADDRESS\n"


def test_fragmented_memory_can_be_used_up() -> None:
    out = isolated(
        """
prop = properties()
total = 64 << 20
handles = [call("cuMemCreate", PAGE, prop, 0) for _ in range(total // PAGE)]
for handle in handles[::2]:
    call("cuMemRelease", handle)
big = [call("cuMemCreate", 4 * PAGE, prop, 0) for _ in range(total // PAGE // 8)]
print(code("cuMemCreate", PAGE, prop, 0))
""",
    )
    assert out == "OUT_OF_MEMORY\n"
