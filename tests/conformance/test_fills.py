"""Filling memory with a value of one, two or four bytes, in one and two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .api import DEVICE, Range, call, code, read

TYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32}
VALUES = {8: 0x9B, 16: 0x9B3C, 32: 0x9B3C_71E8}
ARGUMENTS: dict[str, list[Any]] = {"": [], "Async": [0]}


@pytest.mark.parametrize("tail", ARGUMENTS)
@pytest.mark.parametrize("bits", TYPES)
@pytest.mark.parametrize("kind", ["device", "host", "mixed"])
def test_a_line_of_values(page: int, host_kind: Any, kind: str, bits: int, tail: str) -> None:
    """cuMemsetD8, cuMemsetD16, cuMemsetD32: so many elements, across the borders of handles."""
    kinds = {"device": (DEVICE, DEVICE), "host": (host_kind,) * 2, "mixed": (DEVICE, host_kind)}[kind]
    size = bits // 8
    with Range(page, *((one, 1) for one in kinds)) as r:
        call("cuMemsetD8", r.va, 0x55, r.bytes)
        expected = np.full(r.bytes, 0x55, np.uint8)
        for first, count in ((0, 1), (page - 8 * size, 16), (page + 64, (page - 128) // size)):
            call(f"cuMemsetD{bits}{tail}", r.va + first, VALUES[bits], count, *ARGUMENTS[tail])
            expected[first : first + count * size] = np.full(count, VALUES[bits], TYPES[bits]).view(np.uint8)
        call("cuCtxSynchronize")
        assert (read(r.va, r.bytes) == expected).all()


@pytest.mark.parametrize("tail", ARGUMENTS)
@pytest.mark.parametrize("bits", TYPES)
@pytest.mark.parametrize("kind", ["device", "host", "mixed"])
def test_rows_of_values(page: int, host_kind: Any, kind: str, bits: int, tail: str) -> None:
    """cuMemsetD2D8, cuMemsetD2D16, cuMemsetD2D32: rows of elements, the pitch in bytes between them."""
    kinds = {"device": (DEVICE, DEVICE), "host": (host_kind,) * 2, "mixed": (DEVICE, host_kind)}[kind]
    size, pitch, width = bits // 8, 512, 37
    height = 2 * page // pitch
    with Range(page, *((one, 1) for one in kinds)) as r:
        call("cuMemsetD8", r.va, 0x55, r.bytes)
        call(f"cuMemsetD2D{bits}{tail}", r.va, pitch, VALUES[bits], width, height, *ARGUMENTS[tail])
        call("cuCtxSynchronize")
        rows = read(r.va, r.bytes).reshape(height, pitch)
        assert (rows[:, : width * size] == np.full(width, VALUES[bits], TYPES[bits]).view(np.uint8)).all()
        assert (rows[:, width * size :] == 0x55).all()


def test_one_row_needs_no_pitch(page: int) -> None:
    """cuMemsetD2D8: the pitch is unused if the height is 1."""
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemsetD8", r.va, 0, 64)
        call("cuMemsetD2D8", r.va, 0, 3, 16, 1)
        assert read(r.va, 64).tolist() == [3] * 16 + [0] * 48


@pytest.mark.parametrize(("bits", "offset"), [(16, 1), (32, 1), (32, 2), (32, 3)])
def test_elements_are_aligned(page: int, bits: int, offset: int) -> None:
    """cuMemsetD16, cuMemsetD32: the pointer, and in two dimensions the pitch, are multiples of the element."""
    with Range(page, (DEVICE, 1)) as r:
        assert code(f"cuMemsetD{bits}", r.va + offset, 0, 4) == "INVALID_VALUE"
        assert code(f"cuMemsetD2D{bits}", r.va + offset, 512, 0, 4, 4) == "INVALID_VALUE"
        assert code(f"cuMemsetD2D{bits}", r.va, 512 + offset, 0, 4, 4) == "INVALID_VALUE"


def test_nothing_to_fill(page: int) -> None:
    """cuMemsetD8: no elements is no error, and no work."""
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemsetD8", r.va, 1, page)
        call("cuMemsetD8", r.va, 2, 0)
        call("cuMemsetD2D8", r.va, 512, 2, 0, 4)
        assert (read(r.va, page) == 1).all()


def test_fills_of_addresses_that_are_not_mapped(page: int) -> None:
    """cuMemsetD8: an address without memory is no device pointer."""
    with Range(page, (DEVICE, 1), room=2) as r:
        assert code("cuMemsetD8", r.va + page, 0, 16) == "INVALID_VALUE"
