"""What the driver says about addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from .api import DEVICE, NO_ACCESS, READ, READ_WRITE, Range, access, call, code

ATTRIBUTES = driver.CUpointer_attribute
TYPE = ATTRIBUTES.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
ORDINAL = ATTRIBUTES.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
MAPPED = ATTRIBUTES.CU_POINTER_ATTRIBUTE_MAPPED
START = ATTRIBUTES.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
SIZE = ATTRIBUTES.CU_POINTER_ATTRIBUTE_RANGE_SIZE
BUFFER = ATTRIBUTES.CU_POINTER_ATTRIBUTE_BUFFER_ID
MANAGED = ATTRIBUTES.CU_POINTER_ATTRIBUTE_IS_MANAGED
HERE = ATTRIBUTES.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
THERE = ATTRIBUTES.CU_POINTER_ATTRIBUTE_HOST_POINTER
CONTEXT = ATTRIBUTES.CU_POINTER_ATTRIBUTE_CONTEXT
FLAGS = ATTRIBUTES.CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
ON_HOST = int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)
ON_DEVICE = int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE)


def ask(attribute: Any, va: int) -> int:
    return int(call("cuPointerGetAttribute", attribute, va))


def extent(va: int) -> tuple[int, int]:
    base, size = call("cuMemGetAddressRange", va)
    return int(base), int(size)


def test_a_range_is_where_its_pages_are(page: int, host_kind: Any) -> None:
    """cuPointerGetAttribute, MEMORY_TYPE: the physical memory's, page by page of one range."""
    with Range(page, (DEVICE, 1), (host_kind, 1), (DEVICE, 1)) as r:
        where = [ask(TYPE, r.va + at) for at in range(0, r.bytes, page // 2)]
        assert where == [ON_DEVICE] * 2 + [ON_HOST] * 2 + [ON_DEVICE] * 2
        for at in range(0, r.bytes, page):
            assert ask(HERE, r.va + at + 3) == r.va + at + 3
            assert ask(MANAGED, r.va + at) == 0
            assert ask(MAPPED, r.va + at) == 1
        assert ask(ORDINAL, r.va) == ask(ORDINAL, r.va + 2 * page) == 0


def test_an_address_range_is_one_mapping(page: int, host_kind: Any) -> None:
    """cuMemGetAddressRange: base and size of what contains the pointer, each handle's mapping by itself."""
    with Range(page, (DEVICE, 1), (host_kind, 2), (DEVICE, 4), room=8) as r:
        for first, count in ((0, 1), (1, 2), (3, 4)):
            for va in (r.va + first * page, r.va + first * page + 1, r.va + (first + count) * page - 1):
                assert extent(va) == (r.va + first * page, count * page)
        assert code("cuMemGetAddressRange", r.va + 7 * page) in {"NOT_FOUND", "INVALID_VALUE"}


def test_a_pointers_range_is_its_reservation(page: int) -> None:
    """cuPointerGetAttribute, RANGE_START_ADDR and RANGE_SIZE: the mappable range, not the mapping."""
    with Range(page, (DEVICE, 1), (DEVICE, 2), room=8) as r:
        for at in (0, page, 2 * page + 5):
            assert ask(START, r.va + at) == r.va
            assert ask(SIZE, r.va + at) == r.reserved


def test_a_reservation_without_memory_is_not_mapped(page: int) -> None:
    """cuPointerGetAttribute, MAPPED: whether the address is backed."""
    with Range(page, (DEVICE, 1), room=2) as r:
        assert ask(MAPPED, r.va) == 1
        assert ask(MAPPED, r.va + page) == 0
        assert code("cuPointerGetAttribute", TYPE, r.va + page) == "INVALID_VALUE"


@pytest.mark.parametrize("flags", [NO_ACCESS, READ, READ_WRITE])
def test_access_flags_are_those_that_were_set(page: int, flags: Any) -> None:
    """cuPointerGetAttribute, ACCESS_FLAGS: the current context's access."""
    with Range(page, (DEVICE, 1), grant=False) as r:
        call("cuMemSetAccess", r.va, page, [access(flags=flags)], 1)
        assert ask(FLAGS, r.va) == int(flags)


def test_ids_of_buffers_are_never_used_again(page: int) -> None:
    """cuPointerGetAttribute, BUFFER_ID: unique over the process's lifetime."""
    ids = []
    for _ in range(4):
        va = int(call("cuMemAlloc", 4096))
        ids.append(ask(BUFFER, va))
        assert ask(BUFFER, va + 4095) == ids[-1]
        call("cuMemFree", va)
    with Range(page, (DEVICE, 1), (DEVICE, 1)) as r:
        ids += [ask(BUFFER, r.va), ask(BUFFER, r.va + page)]
    assert len(set(ids)) == 6


def test_plain_allocations(device: Any) -> None:
    """cuMemAlloc, cuMemGetAddressRange: aligned, its own extent, gone when freed."""
    va = int(call("cuMemAlloc", 5000))
    assert va % 256 == 0
    assert extent(va + 4999) == (va, 5000)
    assert ask(TYPE, va) == ON_DEVICE
    assert ask(CONTEXT, va) == int(device.context)
    assert code("cuMemFree", va + 1) == "INVALID_VALUE"
    call("cuMemFree", va)
    assert code("cuMemFree", va) == "INVALID_VALUE"
    assert code("cuPointerGetAttribute", TYPE, va) == "INVALID_VALUE"


@pytest.mark.parametrize("how", ["cuMemAllocHost", "cuMemHostAlloc"])
def test_pinned_memory(how: str) -> None:
    """cuMemAllocHost: host memory, at the same address on the device."""
    va = int(call(how, 5000, *([0] if how == "cuMemHostAlloc" else [])))
    assert ask(TYPE, va + 4999) == ON_HOST
    assert ask(HERE, va + 7) == ask(THERE, va + 7) == va + 7
    assert int(call("cuMemHostGetDevicePointer", va, 0)) == va
    call("cuMemFreeHost", va)
    assert code("cuMemFreeHost", va) == "INVALID_VALUE"


def test_registered_memory() -> None:
    """cuMemHostRegister, cuMemHostUnregister: once, and by the address that was registered."""
    memory = np.zeros(8 * 4096, np.uint8)
    at = -(-memory.ctypes.data // 4096) * 4096
    call("cuMemHostRegister", at, 4 * 4096, 0)
    assert ask(TYPE, at) == ON_HOST
    assert code("cuMemHostRegister", at, 4 * 4096, 0) == "HOST_MEMORY_ALREADY_REGISTERED"
    here = int(call("cuMemHostGetDevicePointer", at, 0))
    call("cuMemsetD8", here + 4095, 7, 2)
    call("cuCtxSynchronize")
    assert memory.sum() == 14
    assert memory[at - memory.ctypes.data + 4095] == 7
    call("cuMemHostUnregister", at)
    assert code("cuMemHostUnregister", at) == "HOST_MEMORY_NOT_REGISTERED"


def test_memory_that_the_driver_does_not_know() -> None:
    """cuPointerGetAttribute fails; cuPointerGetAttributes succeeds, with null values."""
    memory = np.zeros(4096, np.uint8)
    va = memory.ctypes.data
    assert code("cuPointerGetAttribute", TYPE, va) == "INVALID_VALUE"
    kind, context, size = call("cuPointerGetAttributes", 3, [TYPE, CONTEXT, SIZE], va)
    assert (int(kind), int(context), int(size)) == (0, 0, 0)


def test_many_attributes_at_once(page: int, host_kind: Any) -> None:
    """cuPointerGetAttributes: as many as are asked for, of one pointer."""
    with Range(page, (DEVICE, 1), (host_kind, 1)) as r:
        names = [TYPE, HERE, START, SIZE, MAPPED]
        for at, kind in ((0, ON_DEVICE), (page + 9, ON_HOST)):
            values = [int(value) for value in call("cuPointerGetAttributes", 5, names, r.va + at)]
            assert values == [kind, r.va + at, r.va, r.reserved, 1]
