"""Kernels over memory of several handles, on the device, on the host, and on both by turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memx

from .api import DEVICE, Gate, Kernels, Range, access, call, code, pattern, read, write
from .conftest import Streams


@pytest.fixture(params=["device", "host", "mixed"])
def parts(request: pytest.FixtureRequest, host_kind: Any) -> list[tuple[Any, int]]:
    """Seven pages."""
    return {
        "device": [(DEVICE, 1), (DEVICE, 2), (DEVICE, 4)],
        "host": [(host_kind, 4), (host_kind, 2), (host_kind, 1)],
        "mixed": [(DEVICE, 1), (host_kind, 2), (DEVICE, 3), (host_kind, 1)],
    }[request.param]


@pytest.mark.parametrize("offset", [0, 1, 4097])
def test_the_pattern_across_handles(page: int, parts: Any, kernels: Kernels, offset: int) -> None:
    """cuMemMap: a contiguous range is one memory to a kernel, whatever backs it."""
    seed = 11 << 32 | 0xDEADBEEF
    with Range(page, *parts) as r:
        count = r.bytes - offset - 3
        kernels("memx_fill", 0, r.va, r.bytes, 0xAB)
        kernels("memx_stamp", 0, r.va + offset, count, seed, offset)
        got = read(r.va, r.bytes)
        assert (got[offset : offset + count] == pattern(count, seed, offset)).all()
        assert (got[:offset] == 0xAB).all()
        assert (got[offset + count :] == 0xAB).all()


def test_verification_counts_each_byte(page: int, parts: Any, kernels: Kernels) -> None:
    """cuLaunchKernel: the kernels that the contents of other tests are checked with are right themselves."""
    rng = np.random.default_rng(8)
    counter = int(call("cuMemAlloc", 8))
    with Range(page, *parts) as r:
        call("cuMemsetD8", counter, 0, 8)
        data = pattern(r.bytes, 99 << 32 | 1)
        wrong = rng.choice(r.bytes, 1000, replace=False)
        data[wrong] ^= rng.integers(1, 256, 1000, np.uint8)
        write(r.va, data)
        kernels("memx_verify", 0, r.va, r.bytes, 99 << 32 | 1, 0, counter)
        assert int(read(counter, 8).view(np.uint64)[0]) == 1000
    call("cuMemFree", counter)


def test_arithmetic_between_ranges(page: int, parts: Any, kernels: Kernels) -> None:
    """cuLaunchKernel: parameters of each width, two ranges of different handles."""
    rng = np.random.default_rng(9)
    x, y = (rng.standard_normal(7 * page // 4, np.float32) for _ in range(2))
    with Range(page, *parts) as a, Range(page, (DEVICE, 4), (DEVICE, 3)) as b:
        write(a.va, x)
        write(b.va, y)
        kernels("memx_axpy", 0, b.va, a.va, 0.5, len(x))
        kernels("memx_copy", 0, a.va + 4, b.va, x.nbytes - 4)
        expected = y + np.float32(0.5) * x
        assert (read(b.va, y.nbytes).view(np.float32) == expected).all()
        assert (read(a.va + 4, x.nbytes - 4).view(np.float32) == expected[:-1]).all()


def test_what_a_kernel_finds_in_memory(page: int, parts: Any, kernels: Kernels) -> None:
    """cuLaunchKernel: addresses read from memory are as good as parameters."""
    with Range(page, *parts) as r:
        table = np.array([r.va + i * page for i in range(7)], np.uint64)
        write(r.va + r.bytes - 64, table)
        kernels("memx_gather", 0, r.va + r.bytes - 64, 7, page - 64, 1)
        call("cuCtxSynchronize")


def test_a_mapping_may_change_between_kernels(page: int, host_kind: Any, kernels: Kernels, streams: Streams) -> None:
    """cuMemMap, cuMemUnmap: an address keeps its contents when they move to other memory, and kernels go on."""
    seed = 21 << 32
    stream = streams.nonblocking()
    counter = int(call("cuMemAlloc", 8))
    call("cuMemsetD8", counter, 0, 8)
    with Range(page, (DEVICE, 1)) as r, Range(page, (host_kind, 1)) as spare:
        kernels("memx_stamp", stream, r.va, page, seed, 0)
        for here, there in ((r.handles[0], spare.handles[0]), (spare.handles[0], r.handles[0])):
            call("cuMemcpyDtoDAsync", spare.va, r.va, page, stream)
            call("cuStreamSynchronize", stream)
            call("cuMemUnmap", r.va, page)
            call("cuMemUnmap", spare.va, page)
            for va, handle in ((r.va, there), (spare.va, here)):
                call("cuMemMap", va, page, 0, handle, 0)
                call("cuMemSetAccess", va, page, [access()], 1)
            kernels("memx_verify", stream, r.va, page, seed, 0, counter)
        call("cuStreamSynchronize", stream)
        assert int(read(counter, 8).view(np.uint64)[0]) == 0
    call("cuMemFree", counter)


def test_parameters_are_taken_at_the_launch(page: int, kernels: Kernels, streams: Streams) -> None:
    """cuLaunchKernel: what the parameters point to may change once the call returned."""
    stream = streams.nonblocking()
    with Range(page, (DEVICE, 1)) as r:
        with Gate(stream):
            for number in range(16):
                kernels("memx_fill", stream, r.va + number, 1, number)
        call("cuStreamSynchronize", stream)
        assert read(r.va, 16).tolist() == list(range(16))


def test_kernels_that_are_not_there() -> None:
    """cuModuleGetFunction: a name that the module does not have is not found."""
    module = call("cuModuleLoadData", (Path(memx.__file__).parent / "kernels.ptx").read_bytes() + b"\0")
    assert code("cuModuleGetFunction", module, b"no_such_kernel") == "NOT_FOUND"
    call("cuModuleUnload", module)
