"""Copies between memories of every kind, in one and two dimensions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from .api import DEVICE, Range, call, code, read, write

HOST_MEMORY = driver.CUmemorytype.CU_MEMORYTYPE_HOST
DEVICE_MEMORY = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
UNIFIED_MEMORY = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
KINDS = ["device", "host", "mixed"]


@pytest.fixture
def make(page: int, host_kind: Any) -> Iterator[Callable[[str], Range]]:
    """Ranges of three pages: on the device, on the host, or changing from page to page."""
    parts = {
        "device": [(DEVICE, 1), (DEVICE, 2)],
        "host": [(host_kind, 2), (host_kind, 1)],
        "mixed": [(DEVICE, 1), (host_kind, 1), (DEVICE, 1)],
    }
    made: list[Range] = []

    def range_of(kind: str) -> Range:
        made.append(Range(page, *parts[kind]))
        return made[-1]

    yield range_of
    for one in made:
        one.__exit__(None, None, None)


def view(va: int, nbytes: int) -> np.ndarray:
    """Memory at a host address."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(va), np.uint8)


def pieces(page: int) -> list[tuple[int, int, int]]:
    """Where to, where from and how much: within a page, over one border, over all, misaligned."""
    return [
        (0, 0, 3 * page),
        (page - 1, 1, 2),
        (5, 2 * page - 3, page),
        (page // 2 + 1, page // 4, 2 * page + 7),
        (3 * page - 1, 0, 1),
        (0, 0, 0),
    ]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("unified", [False, True], ids=["typed", "unified"])
@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_copies_between_ranges(
    make: Callable[[str], Range], page: int, target: str, source: str, unified: bool, asynchronous: bool
) -> None:
    """cuMemcpyDtoD, cuMemcpy: between mapped addresses, whatever and however many handles are there."""
    rng = np.random.default_rng(2)
    to, at = make(target), make(source)
    data, expected = (rng.integers(0, 256, 3 * page, np.uint8) for _ in range(2))
    write(at.va, data)
    write(to.va, expected)
    function = ("cuMemcpy" if unified else "cuMemcpyDtoD") + ("Async" if asynchronous else "")
    for where, begin, count in pieces(page):
        call(function, to.va + where, at.va + begin, count, *([0] if asynchronous else []))
        expected[where : where + count] = data[begin : begin + count]
    call("cuCtxSynchronize")
    assert (read(to.va, 3 * page) == expected).all()


@pytest.mark.parametrize("pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
def test_copies_from_and_to_the_host(
    make: Callable[[str], Range], page: int, kind: str, asynchronous: bool, pinned: bool
) -> None:
    """cuMemcpyHtoD, cuMemcpyDtoH: host pointers of both kinds, ranges of every kind."""
    rng = np.random.default_rng(4)
    size = 3 * page
    r = make(kind)
    block = int(call("cuMemAllocHost", 2 * size)) if pinned else 0
    host = view(block, 2 * size) if pinned else np.zeros(2 * size, np.uint8)
    out, back = host[:size], host[size:]
    out[:] = rng.integers(0, 256, size, np.uint8)
    expected = np.zeros(size, np.uint8)
    call("cuMemsetD8", r.va, 0, size)
    tail = "Async" if asynchronous else ""
    stream = [0] if asynchronous else []
    for to, begin, count in pieces(page):
        call(f"cuMemcpyHtoD{tail}", r.va + to, out.ctypes.data + begin, count, *stream)
        expected[to : to + count] = out[begin : begin + count]
    for at, size_of in ((0, page + 1), (page + 1, 2 * page - 1)):
        call(f"cuMemcpyDtoH{tail}", back.ctypes.data + at, r.va + at, size_of, *stream)
    call("cuCtxSynchronize")
    assert (back == expected).all()
    if pinned:
        call("cuMemFreeHost", block)


def test_a_pageable_source_may_change_at_once(page: int) -> None:
    """cuMemcpyHtoDAsync: memory that is not page-locked is taken before the call returns."""
    source = np.full(1024, 1, np.uint8)
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemcpyHtoDAsync", r.va, source.ctypes.data, 1024, 0)
        source[:] = 2
        assert (read(r.va, 1024) == 1).all()


def test_unified_copies_find_the_host(page: int) -> None:
    """cuMemcpy: infers the type of the transfer from the pointers."""
    rng = np.random.default_rng(5)
    source, target = rng.integers(0, 256, page, np.uint8), np.zeros(page, np.uint8)
    pinned = int(call("cuMemAllocHost", page))
    with Range(page, (DEVICE, 1)) as r:
        call("cuMemcpy", r.va, source.ctypes.data, page)
        call("cuMemcpy", pinned, r.va, page)
        call("cuMemcpy", target.ctypes.data, pinned, page)
        call("cuCtxSynchronize")
    call("cuMemFreeHost", pinned)
    assert (target == source).all()


def test_copies_between_contexts(page: int, device: Any) -> None:
    """cuMemcpyPeer: of one context or two."""
    data = np.arange(64, dtype=np.uint8)
    with Range(page, (DEVICE, 1)) as a, Range(page, (DEVICE, 1)) as b:
        write(a.va, data)
        call("cuMemcpyPeer", b.va, device.context, a.va, device.context, 64)
        call("cuMemcpyPeerAsync", b.va + 64, device.context, b.va, device.context, 64, 0)
        assert (read(b.va, 128).reshape(2, 64) == data).all()


def plane(kind: Any, base: int, pitch: int, x: int, y: int, side: str, copy: driver.CUDA_MEMCPY2D) -> None:
    """One side of a two-dimensional copy."""
    setattr(copy, f"{side}MemoryType", kind)
    setattr(copy, f"{side}Host" if kind == HOST_MEMORY else f"{side}Device", base)
    setattr(copy, f"{side}Pitch", pitch)
    setattr(copy, f"{side}XInBytes", x)
    setattr(copy, f"{side}Y", y)


@pytest.mark.parametrize("function", ["cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync"])
@pytest.mark.parametrize("type_", [DEVICE_MEMORY, UNIFIED_MEMORY], ids=["device", "unified"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_dimensional_copies(make: Callable[[str], Range], page: int, kind: str, type_: Any, function: str) -> None:
    """cuMemcpy2D: rows of a width, each side with a pitch and a first row and column of its own."""
    rng = np.random.default_rng(6)
    pitch, width, height, x, y = 512, 300, 3 * page // 512 - 3, 17, 2
    source = rng.integers(0, 256, (height + 1, 320), np.uint8)
    target = np.zeros((height + 4, 400), np.uint8)
    arguments = [0] if function.endswith("Async") else []
    r = make(kind)
    call("cuMemsetD8", r.va, 0, 3 * page)
    there, back = driver.CUDA_MEMCPY2D(), driver.CUDA_MEMCPY2D()
    plane(HOST_MEMORY, source.ctypes.data, 320, 5, 1, "src", there)
    plane(type_, r.va, pitch, x, y, "dst", there)
    plane(type_, r.va, pitch, x, y, "src", back)
    plane(HOST_MEMORY, target.ctypes.data, 400, 11, 3, "dst", back)
    for copy in (there, back):
        copy.WidthInBytes, copy.Height = width, height
        call(function, copy, *arguments)
    call("cuCtxSynchronize")
    assert (target[3 : 3 + height, 11 : 11 + width] == source[1 : 1 + height, 5 : 5 + width]).all()
    assert target.sum(dtype=np.int64) == source[1 : 1 + height, 5 : 5 + width].sum(dtype=np.int64)
    whole = read(r.va, 3 * page).reshape(-1, pitch)
    assert (whole[y : y + height, x : x + width] == source[1 : 1 + height, 5 : 5 + width]).all()
    assert whole.sum(dtype=np.int64) == target.sum(dtype=np.int64)


def test_rows_fit_their_pitch(page: int) -> None:
    """cuMemcpy2D: the pitch is at least column and width."""
    source = np.zeros((4, 64), np.uint8)
    with Range(page, (DEVICE, 1)) as r:
        copy = driver.CUDA_MEMCPY2D()
        plane(HOST_MEMORY, source.ctypes.data, 64, 8, 0, "src", copy)
        plane(DEVICE_MEMORY, r.va, 512, 0, 0, "dst", copy)
        copy.WidthInBytes, copy.Height = 64, 4
        assert code("cuMemcpy2D", copy) == "INVALID_VALUE"


@pytest.mark.parametrize("function", ["cuMemcpyDtoD", "cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH"])
def test_an_empty_copy_is_one(function: str, page: int) -> None:
    """cuMemcpy and its kin: nothing to copy is no error."""
    host = np.zeros(1, np.uint8)
    with Range(page, (DEVICE, 1)) as r:
        to = host.ctypes.data if function == "cuMemcpyDtoH" else r.va
        at = host.ctypes.data if function == "cuMemcpyHtoD" else r.va
        call(function, to, at, 0)


def test_copies_to_device_addresses_that_are_not_mapped(page: int) -> None:
    """cuMemcpyHtoD, cuMemcpyDtoH: an address of a reservation without memory is no device pointer."""
    host = np.zeros(64, np.uint8)
    with Range(page, (DEVICE, 1), room=2) as r:
        assert code("cuMemcpyHtoD", r.va + page, host.ctypes.data, 64) == "INVALID_VALUE"
        assert code("cuMemcpyDtoH", host.ctypes.data, r.va + page, 64) == "INVALID_VALUE"
