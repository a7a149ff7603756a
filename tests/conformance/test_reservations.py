"""Reservations of addresses."""

from __future__ import annotations

import itertools

import pytest

from .api import DEVICE, REFUSED, Range, call, code


@pytest.mark.parametrize("alignment", [0, 1 << 21, 1 << 30])
@pytest.mark.parametrize("pages", [1, 3, 1 << 15])
def test_the_alignment_asked_for_holds(page: int, pages: int, alignment: int) -> None:
    """cuMemAddressReserve: a power of two, or zero for the default; every page can then be mapped."""
    va = int(call("cuMemAddressReserve", pages * page, alignment, 0, 0))
    assert va % max(alignment, page) == 0
    call("cuMemAddressFree", va, pages * page)


def test_reservations_are_larger_than_memory(page: int) -> None:
    """cuMemAddressReserve: addresses take no memory, so that a terabyte of them can be had on any device."""
    free, _ = call("cuMemGetInfo")
    va = int(call("cuMemAddressReserve", 1 << 40, page, 0, 0))
    assert call("cuMemGetInfo")[0] + (64 << 20) >= free
    call("cuMemAddressFree", va, 1 << 40)


def test_reservations_do_not_overlap(page: int) -> None:
    """cuMemAddressReserve: each range is its holder's alone."""
    sizes = [(1 + 7 * i % 5) * page for i in range(20)]
    ranges = sorted((int(call("cuMemAddressReserve", size, 0, 0, 0)), size) for size in sizes)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ranges))
    for va, size in ranges:
        call("cuMemAddressFree", va, size)


@pytest.mark.parametrize(
    ("size", "alignment", "flags"),
    [
        pytest.param(0, 0, 0, id="no size"),
        pytest.param((1 << 21) + 1, 0, 0, id="not whole host pages"),
        pytest.param(1 << 21, (1 << 21) + 1, 0, id="alignment not a power of two"),
        pytest.param(1 << 21, 3 << 20, 0, id="alignment of three"),
        pytest.param(1 << 21, 0, 1, id="flags"),
    ],
)
def test_bad_reservations(size: int, alignment: int, flags: int) -> None:
    """cuMemAddressReserve: whole host pages, alignment a power of two or zero, flags zero."""
    assert code("cuMemAddressReserve", size, alignment, 0, flags) == "INVALID_VALUE"


def test_a_reservation_beyond_the_address_space() -> None:
    """cuMemAddressReserve: no such range, out of memory."""
    assert code("cuMemAddressReserve", 1 << 60, 0, 0, 0) in {"OUT_OF_MEMORY", "INVALID_VALUE"}


def test_an_address_asked_for_is_a_hint(page: int) -> None:
    """cuMemAddressReserve: an address is a hint, and one that is taken does not make the call fail."""
    va = int(call("cuMemAddressReserve", 4 * page, 0, 0, 0))
    other = int(call("cuMemAddressReserve", 4 * page, 0, va, 0))
    assert abs(other - va) >= 4 * page
    call("cuMemAddressFree", other, 4 * page)
    call("cuMemAddressFree", va, 4 * page)


def test_a_free_names_what_was_reserved(page: int) -> None:
    """cuMemAddressFree: address and size are those of the reservation."""
    va = int(call("cuMemAddressReserve", 4 * page, 0, 0, 0))
    for at, size in [(va, 2 * page), (va, 8 * page), (va + page, 3 * page), (va + page, 4 * page), (va, 0)]:
        assert code("cuMemAddressFree", at, size) == "INVALID_VALUE"
    call("cuMemAddressFree", va, 4 * page)


def test_a_reservation_is_freed_once(page: int) -> None:
    """cuMemAddressFree: what is no reservation any more cannot be freed."""
    va = int(call("cuMemAddressReserve", page, 0, 0, 0))
    call("cuMemAddressFree", va, page)
    assert code("cuMemAddressFree", va, page) == "INVALID_VALUE"


def test_a_reservation_that_is_mapped_cannot_be_freed(page: int) -> None:
    """cuMemAddressFree: the mappings go first; the refusal leaves them as they were."""
    with Range(page, (DEVICE, 1), room=2) as r:
        assert code("cuMemAddressFree", r.va, r.reserved) in REFUSED
        call("cuMemsetD8", r.va, 1, page)
        call("cuCtxSynchronize")
        call("cuMemUnmap", r.va, page)
        call("cuMemMap", r.va + page, page, 0, r.handles[0], 0)
