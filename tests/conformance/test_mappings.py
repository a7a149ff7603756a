"""Mapping handles at addresses, and who may reach them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from .api import (
    DEVICE,
    HOST,
    HOST_NUMA,
    NO_ACCESS,
    READ,
    REFUSED,
    Kernels,
    Range,
    access,
    call,
    code,
    location,
    properties,
    read,
    write,
)

# Where in a reservation of 8 pages, whose first 2 are mapped by one handle; which of a handle of 1 or 2 pages.
BAD_MAPPINGS = {
    "an offset": (4, 1, 1, 2, 0),
    "flags": (4, 1, 0, 1, 1),
    "no size": (4, 0, 0, 1, 0),
    "a misaligned address": (4.5, 1, 0, 1, 0),
    "a misaligned size": (4, 0.5, 0, 1, 0),
    "more than the handle": (4, 2, 0, 1, 0),
    "over a mapping": (0, 2, 0, 2, 0),
    "over a mapping's end": (1, 2, 0, 2, 0),
    "over the reservation's end": (7, 2, 0, 2, 0),
    "past the reservation": (8, 1, 0, 1, 0),
}


@pytest.mark.parametrize("what", BAD_MAPPINGS)
def test_bad_mappings(page: int, what: str) -> None:
    """cuMemMap: whole pages at whole pages, offset and flags zero, within a reservation, over nothing mapped."""
    at, pages, offset, handle_pages, flags = BAD_MAPPINGS[what]
    with Range(page, (DEVICE, 2), room=8) as r:
        handle = call("cuMemCreate", handle_pages * page, properties(), 0)
        size = int(pages * page)
        refused = code("cuMemMap", r.va + int(at * page), size, offset * page, handle, flags)
        assert refused == "INVALID_VALUE"
        call("cuMemMap", r.va + 6 * page, handle_pages * page, 0, handle, 0)
        call("cuMemRelease", handle)


def test_mapping_where_nothing_is_reserved(page: int) -> None:
    """cuMemMap: the range must be reserved, and stays usable when it is reserved again."""
    va = int(call("cuMemAddressReserve", page, page, 0, 0))
    call("cuMemAddressFree", va, page)
    handle = call("cuMemCreate", page, properties(), 0)
    assert code("cuMemMap", va, page, 0, handle, 0) == "INVALID_VALUE"
    call("cuMemRelease", handle)


def test_a_mapping_may_show_the_start_of_a_handle(page: int) -> None:
    """cuMemMap: offset and size lie within the handle; the size need not be all of it."""
    with Range(page, room=2) as r:
        r.handles.append(call("cuMemCreate", 4 * page, properties(), 0))
        call("cuMemMap", r.va, 2 * page, 0, r.handles[0], 0)
        call("cuMemSetAccess", r.va, 2 * page, [access()], 1)
        call("cuMemsetD8", r.va, 3, 2 * page)
        assert (read(r.va, 2 * page) == 3).all()
        call("cuMemUnmap", r.va, 2 * page)


# First page and number of pages, in a range of handles of 1, 2 and 4 pages and a page that is not mapped.
BAD_UNMAPS = {
    "nothing": (0, 0),
    "part of a page": (0, 0.5),
    "from within a page": (0.5, 1),
    "the first part of a mapping": (1, 1),
    "the last part of a mapping": (2, 1),
    "a mapping and part of the next": (0, 2),
    "part of a mapping and the next": (2, 5),
    "a mapping and what is not mapped": (3, 5),
    "what is not mapped": (7, 1),
    "all and more": (0, 8),
    "past the reservation": (8, 1),
}


@pytest.mark.parametrize("what", BAD_UNMAPS)
def test_bad_unmaps(page: int, what: str) -> None:
    """cuMemUnmap: the entire range that was mapped, not a part of a mapping; a refusal changes nothing."""
    first, pages = BAD_UNMAPS[what]
    with Range(page, (DEVICE, 1), (DEVICE, 2), (DEVICE, 4), room=8) as r:
        assert code("cuMemUnmap", r.va + int(first * page), int(pages * page)) == "INVALID_VALUE"
        for at, count in ((0, 1), (1, 2), (3, 4)):
            call("cuMemUnmap", r.va + at * page, count * page)


@pytest.mark.parametrize(("first", "pages"), [(0, 3), (1, 6), (0, 7)])
def test_one_unmap_takes_several_whole_mappings(page: int, first: int, pages: int) -> None:
    """cuMemUnmap: a contiguous range that was mapped, by however many handles."""
    with Range(page, (DEVICE, 1), (DEVICE, 2), (DEVICE, 4)) as r:
        call("cuMemUnmap", r.va + first * page, pages * page)
        assert code("cuMemUnmap", r.va + first * page, pages * page) == "INVALID_VALUE"
        assert code("cuMemRetainAllocationHandle", r.va + first * page) == "INVALID_VALUE"


def test_one_unmap_takes_device_and_host_memory(page: int, host_kind: Any) -> None:
    """cuMemUnmap: a contiguous range, wherever its memory is."""
    with Range(page, (DEVICE, 1), (host_kind, 1), (DEVICE, 2)) as r:
        call("cuMemUnmap", r.va, r.bytes)
        call("cuMemMap", r.va, page, 0, r.handles[1], 0)


def test_an_unmapped_range_is_a_reservation_again(page: int) -> None:
    """cuMemUnmap, cuMemSetAccess: mapped anew, a range has no access until it is given some."""
    with Range(page, (DEVICE, 1)) as r:
        assert call("cuMemGetAccess", location(), r.va) == 3
        call("cuMemUnmap", r.va, page)
        call("cuMemMap", r.va, page, 0, r.handles[0], 0)
        assert call("cuMemGetAccess", location(), r.va) == 0


# First page and number of pages, in a range of handles of 1 and 2 pages and two pages that are not mapped.
BAD_RANGES = {
    "nothing": (0, 0),
    "part of a page": (0, 0.5),
    "from within a page": (0.5, 1),
    "the first part of a mapping": (1, 1),
    "the last part of a mapping": (2, 1),
    "a mapping and what is not mapped": (0, 4),
    "what is not mapped": (3, 1),
    "past the reservation": (5, 1),
}


@pytest.mark.parametrize("what", BAD_RANGES)
def test_access_is_set_on_wholly_mapped_ranges(page: int, what: str) -> None:
    """cuMemSetAccess: a fully mapped range that contains all its allocations; a refusal changes nothing."""
    first, pages = BAD_RANGES[what]
    with Range(page, (DEVICE, 1), (DEVICE, 2), room=5, grant=False) as r:
        at, size = r.va + int(first * page), int(pages * page)
        assert code("cuMemSetAccess", at, size, [access()], 1) == "INVALID_VALUE"
        assert [call("cuMemGetAccess", location(), r.va + i * page) for i in range(3)] == [0, 0, 0]


def test_access_is_set_on_many_mappings_at_once(page: int, host_kind: Any) -> None:
    """cuMemSetAccess: one call for a contiguous range; cuMemGetAccess: the flags at an address."""
    with Range(page, (DEVICE, 1), (host_kind, 2), (DEVICE, 1), grant=False) as r:
        for flags, number in ((READ, 1), (NO_ACCESS, 0)):
            call("cuMemSetAccess", r.va, r.bytes, [access(flags=flags)], 1)
            for va in range(r.va, r.va + r.bytes, page // 2):
                assert call("cuMemGetAccess", location(), va) == number
        call("cuMemSetAccess", r.va + page, 2 * page, [access()], 1)
        assert [call("cuMemGetAccess", location(), r.va + i * page) for i in range(4)] == [0, 3, 3, 0]


def test_access_for_what_is_no_device(page: int) -> None:
    """cuMemSetAccess: a device that is not there; a refusal changes nothing, first of several or last."""
    with Range(page, (DEVICE, 1), grant=False) as r:
        for descs in ([access(DEVICE, 1000)], [access(), access(DEVICE, 1000)], [access(DEVICE, -1)]):
            refused = code("cuMemSetAccess", r.va, page, descs, len(descs))
            assert refused in {"INVALID_DEVICE", "INVALID_VALUE"}
            assert call("cuMemGetAccess", location(), r.va) == 0


@pytest.mark.parametrize("kind", [HOST, HOST_NUMA], ids=["host", "host_numa"])
def test_the_processor_has_no_access_to_device_memory(page: int, kind: Any) -> None:
    """cuMemSetAccess: HOST_NUMA access is for HOST_NUMA memory; device memory is out of the processor's reach."""
    with Range(page, (DEVICE, 1)) as r:
        assert code("cuMemSetAccess", r.va, page, [access(kind)], 1) in REFUSED
        assert call("cuMemGetAccess", location(), r.va) == 3


def test_numa_access_is_for_numa_memory(page: int, device: Any) -> None:
    """cuMemSetAccess: HOST_NUMA accessibility cannot be given to HOST memory."""
    if HOST not in device.host_kinds:
        pytest.skip("this driver maps no such memory")
    with Range(page, (HOST, 1)) as r:
        assert code("cuMemSetAccess", r.va, page, [access(HOST_NUMA)], 1) in REFUSED


def test_access_that_is_no_access(page: int) -> None:
    """cuMemSetAccess: at least one description, with flags that exist."""
    with Range(page, (DEVICE, 1)) as r:
        assert code("cuMemSetAccess", r.va, page, [access()], 0) == "INVALID_VALUE"
        wrong = access()
        wrong.location.type = HOST_NUMA.CU_MEM_LOCATION_TYPE_INVALID
        assert code("cuMemSetAccess", r.va, page, [wrong], 1) in REFUSED
        assert call("cuMemGetAccess", location(), r.va) == 3


def test_access_where_nothing_is_mapped(page: int) -> None:
    """cuMemGetAccess: only what is mapped has flags, and only locations that exist."""
    with Range(page, (DEVICE, 1), room=2) as r:
        assert code("cuMemGetAccess", location(), r.va + page) == "INVALID_VALUE"
        assert code("cuMemGetAccess", location(DEVICE, 1000), r.va) in {"INVALID_DEVICE", "INVALID_VALUE"}


def test_another_device_is_given_access_on_its_own(page: int) -> None:
    """cuMemSetAccess: flags are a location's own; a peer may read what its owner may write."""
    if call("cuDeviceGetCount") < 2 or not call("cuDeviceCanAccessPeer", 1, 0):
        pytest.skip("needs two devices that reach each other")
    with Range(page, (DEVICE, 1)) as r:
        assert call("cuMemGetAccess", location(DEVICE, 1), r.va) == 0
        call("cuMemSetAccess", r.va, page, [access(DEVICE, 1)], 1)
        assert call("cuMemGetAccess", location(), r.va) == 3
        assert call("cuMemGetAccess", location(DEVICE, 1), r.va) == 3
        call("cuMemSetAccess", r.va, page, [access(flags=NO_ACCESS)], 1)
        assert call("cuMemGetAccess", location(DEVICE, 1), r.va) == 3


def test_the_processor_shares_host_memory(page: int, host_kind: Any, kernels: Kernels) -> None:
    """cuMemSetAccess: host memory can be granted to the processor as well, at the same address."""
    with Range(page, (host_kind, 2)) as r:
        call("cuMemSetAccess", r.va, r.bytes, [access(host_kind)], 1)
        view = np.frombuffer((ctypes.c_uint8 * r.bytes).from_address(r.va), np.uint8)
        view[:] = 3
        kernels("memx_fill", 0, r.va + page - 2, 4, 4)
        call("cuCtxSynchronize")
        assert view[page - 3 : page + 3].tolist() == [3, 4, 4, 4, 4, 3]
        assert (read(r.va, r.bytes) == view).all()
        del view


def test_read_only_memory_can_be_read(page: int, kernels: Kernels) -> None:
    """cuMemSetAccess: with the flag for reading, a kernel reads."""
    data = np.arange(page, dtype=np.uint64).astype(np.uint8)
    with Range(page, (DEVICE, 1)) as r, Range(page, (DEVICE, 1)) as out:
        write(r.va, data)
        call("cuMemSetAccess", r.va, page, [access(flags=READ)], 1)
        kernels("memx_copy", 0, out.va, r.va, page)
        assert (read(out.va, page) == data).all()
