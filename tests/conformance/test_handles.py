"""Handles of physical memory: where they can be, how much there is, how long they live."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from .api import (
    DEVICE,
    HOST_NUMA_CURRENT,
    MINIMUM,
    READ,
    RECOMMENDED,
    REFUSED,
    Kernels,
    Range,
    access,
    call,
    code,
    location,
    pattern,
    properties,
    read,
    write,
)


def most(page: int) -> int:
    """More than half of what is free on the device, in whole pages: two such handles never fit."""
    free, _ = call("cuMemGetInfo")
    return int(free) * 6 // 10 // page * page


def has_room_for(nbytes: int) -> bool:
    """Whether a handle of so many bytes can be made; it is given back."""
    result, handle = driver.cuMemCreate(nbytes, properties(), 0)
    if int(result) == 0:
        call("cuMemRelease", handle)
    else:
        assert result.name == "CUDA_ERROR_OUT_OF_MEMORY"
    return int(result) == 0


def test_granularities_are_powers_of_two(host_kind: Any) -> None:
    """cuMemGetAllocationGranularity: usable for alignment; the recommended is a multiple of the least."""
    for kind in (DEVICE, host_kind):
        least = int(call("cuMemGetAllocationGranularity", properties(kind), MINIMUM))
        recommended = int(call("cuMemGetAllocationGranularity", properties(kind), RECOMMENDED))
        assert least >= 4096
        assert least & (least - 1) == 0
        assert recommended % least == 0


def test_granularity_of_what_cannot_be() -> None:
    """cuMemGetAllocationGranularity: the properties must be of memory that could be made."""
    nothing = driver.CUmemAllocationProp()
    assert code("cuMemGetAllocationGranularity", nothing, MINIMUM) in REFUSED
    assert code("cuMemGetAllocationGranularity", properties(DEVICE, 1000), MINIMUM) in REFUSED


@pytest.mark.parametrize("size", ["nothing", "half a page", "a page and a byte"])
def test_sizes_are_whole_pages(page: int, size: str) -> None:
    """cuMemCreate: the size is a multiple of the granularity."""
    nbytes = {"nothing": 0, "half a page": page // 2, "a page and a byte": page + 1}[size]
    assert code("cuMemCreate", nbytes, properties(), 0) == "INVALID_VALUE"


def test_flags_are_zero(page: int) -> None:
    """cuMemCreate: flags are for future use."""
    assert code("cuMemCreate", page, properties(), 1) == "INVALID_VALUE"


@pytest.mark.parametrize("number", [-1, 1000])
def test_devices_that_are_not_there(page: int, number: int) -> None:
    """cuMemCreate: the device must be one."""
    assert code("cuMemCreate", page, properties(DEVICE, number), 0) in {"INVALID_DEVICE", "INVALID_VALUE"}


def test_memory_must_be_somewhere(page: int) -> None:
    """cuMemCreate: type and location are to be given, and the current NUMA node is none to create at."""
    nothing = driver.CUmemAllocationProp()
    assert code("cuMemCreate", page, nothing, 0) in REFUSED
    untyped = properties()
    untyped.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_INVALID
    assert code("cuMemCreate", page, untyped, 0) in REFUSED
    assert code("cuMemCreate", page, properties(HOST_NUMA_CURRENT), 0) == "INVALID_VALUE"


def test_host_memory_is_not_shared_between_processes(page: int, host_kind: Any) -> None:
    """cuMemCreate: a HOST allocation takes no handle type."""
    if host_kind != driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST:
        pytest.skip("said of HOST alone")
    prop = properties(host_kind)
    prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    assert code("cuMemCreate", page, prop, 0) == "INVALID_VALUE"


def test_properties_come_back(page: int, host_kind: Any) -> None:
    """cuMemGetAllocationPropertiesFromHandle: what the handle was made with."""
    for kind in (DEVICE, host_kind):
        handle = call("cuMemCreate", page, properties(kind), 0)
        prop = call("cuMemGetAllocationPropertiesFromHandle", handle)
        assert prop.type == driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        assert prop.location.type == kind
        call("cuMemRelease", handle)


def test_device_memory_runs_out(page: int) -> None:
    """cuMemCreate: out of memory when the device has no more; a release makes room."""
    _, total = call("cuMemGetInfo")
    assert code("cuMemCreate", (total // page + 1) * page, properties(), 0) == "OUT_OF_MEMORY"
    size = most(page)
    handle = call("cuMemCreate", size, properties(), 0)
    assert not has_room_for(size)
    call("cuMemRelease", handle)
    assert has_room_for(size)


def test_locations_run_out_on_their_own(page: int, host_kind: Any) -> None:
    """cuMemCreate: one location that is full does not keep another from having room."""
    assert code("cuMemCreate", 1 << 50, properties(host_kind), 0) == "OUT_OF_MEMORY"
    size = most(page)
    handle = call("cuMemCreate", size, properties(), 0)
    assert not has_room_for(size)
    call("cuMemRelease", call("cuMemCreate", page, properties(host_kind), 0))
    call("cuMemRelease", handle)


def test_reservations_and_mappings_take_no_memory(page: int) -> None:
    """cuMemMap: the same memory can be mapped again and again."""
    size = most(page)
    handle = call("cuMemCreate", size, properties(), 0)
    va = int(call("cuMemAddressReserve", 2 * size, page, 0, 0))
    for at in (va, va + size):
        call("cuMemMap", at, size, 0, handle, 0)
    call("cuMemUnmap", va, 2 * size)
    call("cuMemAddressFree", va, 2 * size)
    call("cuMemRelease", handle)
    assert has_room_for(size)


def test_a_released_handle_lives_until_its_last_mapping_goes(page: int) -> None:
    """cuMemRelease, cuMemUnmap: memory goes back when neither a mapping nor a reference is left."""
    size = most(page)
    handle = call("cuMemCreate", size, properties(), 0)
    va = int(call("cuMemAddressReserve", 2 * size, page, 0, 0))
    call("cuMemMap", va, size, 0, handle, 0)
    call("cuMemMap", va + size, size, 0, handle, 0)
    call("cuMemSetAccess", va, 2 * size, [access()], 1)
    call("cuMemRelease", handle)
    assert not has_room_for(size)
    call("cuMemUnmap", va, size)
    assert not has_room_for(size)
    write(va + size, np.full(16, 7, np.uint8))
    assert (read(va + size, 16) == 7).all()
    call("cuMemUnmap", va + size, size)
    assert has_room_for(size)
    call("cuMemAddressFree", va, 2 * size)


def test_a_handle_can_be_had_back_from_any_of_its_addresses(page: int) -> None:
    """cuMemRetainAllocationHandle: the handle mapped there, and one more reference to release."""
    size = most(page)
    handle = call("cuMemCreate", size, properties(), 0)
    va = int(call("cuMemAddressReserve", size, page, 0, 0))
    call("cuMemMap", va, size, 0, handle, 0)
    call("cuMemRelease", handle)
    for offset in (0, 1, page, size - 1):
        again = call("cuMemRetainAllocationHandle", va + offset)
        assert int(again) == int(handle)
        if offset:  # the first is kept
            call("cuMemRelease", again)
    call("cuMemUnmap", va, size)
    assert not has_room_for(size)
    call("cuMemRelease", handle)
    assert has_room_for(size)
    call("cuMemAddressFree", va, size)


def test_no_handle_where_nothing_is_mapped(page: int) -> None:
    """cuMemRetainAllocationHandle: fails where nothing is mapped, reserved or not."""
    with Range(page, (DEVICE, 1), room=2) as r:
        for va in (r.va + page, r.va + 2 * page, 4096):
            assert code("cuMemRetainAllocationHandle", va) == "INVALID_VALUE"


@pytest.mark.parametrize("kinds", ["device", "host", "mixed"])
def test_two_addresses_of_a_handle_are_one_memory(page: int, host_kind: Any, kinds: str, kernels: Kernels) -> None:
    """cuMemMap: a handle may be mapped at several addresses, which then alias."""
    parts = {"device": [DEVICE], "host": [host_kind], "mixed": [DEVICE, host_kind]}[kinds]
    with Range(page, *((kind, 1) for kind in parts)) as a, Range(page, room=len(parts)) as b:
        for number, handle in enumerate(reversed(a.handles)):
            call("cuMemMap", b.va + number * page, page, 0, handle, 0)
        call("cuMemSetAccess", b.va, b.reserved, [access()], 1)
        kernels("memx_stamp", 0, a.va, a.bytes, 5 << 32 | 3, 0)
        expected = pattern(a.bytes, 5 << 32 | 3).reshape(-1, page)[::-1].ravel()
        assert (read(b.va, a.bytes) == expected).all()
        kernels("memx_fill", 0, b.va + 8, 16, 9)
        assert (read(a.va + a.bytes - page + 8, 16) == 9).all()


def test_each_address_has_its_own_access(page: int) -> None:
    """cuMemSetAccess: access belongs to the mapping, not to the handle."""
    with Range(page, (DEVICE, 1)) as a, Range(page, room=1) as b:
        call("cuMemMap", b.va, page, 0, a.handles[0], 0)
        assert call("cuMemGetAccess", location(), b.va) == 0
        call("cuMemSetAccess", b.va, page, [access(flags=READ)], 1)
        assert call("cuMemGetAccess", location(), b.va) == 1
        assert call("cuMemGetAccess", location(), a.va) == 3


def test_contents_stay_with_the_handle(page: int, host_kind: Any) -> None:
    """cuMemUnmap: takes the address away, not what the memory holds."""
    rng = np.random.default_rng(3)
    for kind in (DEVICE, host_kind):
        data = rng.integers(0, 256, page, np.uint8)
        with Range(page, (kind, 1), room=2) as r:
            write(r.va, data)
            call("cuMemUnmap", r.va, page)
            call("cuMemMap", r.va + page, page, 0, r.handles[0], 0)
            call("cuMemSetAccess", r.va + page, page, [access()], 1)
            assert (read(r.va + page, page) == data).all()
