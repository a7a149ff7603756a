"""The driver API with exceptions in place of codes, and ranges, kernels and gates that clean up after themselves."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

import memx

READ_WRITE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
READ = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
NO_ACCESS = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
HOST_NUMA = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA
HOST_NUMA_CURRENT = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
MINIMUM = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
RECOMMENDED = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
NON_BLOCKING = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
DISABLE_TIMING = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
LEGACY, PER_THREAD = 1, 2

#: What a call may answer that must be refused where its documentation names several codes or none.
REFUSED = frozenset({"INVALID_VALUE", "INVALID_DEVICE", "INVALID_HANDLE", "NOT_SUPPORTED", "NOT_PERMITTED"})

#: Every refusal since it was last cleared, as (function, code): a report can compare two drivers by them.
refusals: list[tuple[str, str]] = []

_GATE_SECONDS = 30


class DriverError(Exception):
    """A call's code, as its name without ``CUDA_ERROR_``."""

    def __init__(self, function: str, name: str) -> None:
        super().__init__(f"{function}: {name}")
        self.name = name


def code(function: str, *arguments: Any) -> str:
    """Call a driver function; the name of its code."""
    return _ask(function, arguments)[0]


def call(function: str, *arguments: Any) -> Any:
    """Call a driver function; its result, or a DriverError."""
    name, results = _ask(function, arguments)
    if name != "SUCCESS":
        raise DriverError(function, name)
    return results[0] if len(results) == 1 else tuple(results)


def _ask(function: str, arguments: tuple[Any, ...]) -> tuple[str, Sequence[Any]]:
    result, *values = getattr(driver, function)(*arguments)
    name = result.name.removeprefix("CUDA_").removeprefix("ERROR_")
    if name not in ("SUCCESS", "NOT_READY"):
        refusals.append((function, name))
    return name, values


def start() -> Any:
    """Initialise the driver; the primary context of device 0, current in this thread."""
    call("cuInit", 0)
    context = call("cuDevicePrimaryCtxRetain", 0)
    call("cuCtxSetCurrent", context)
    return context


def properties(kind: Any = DEVICE, number: int = 0) -> driver.CUmemAllocationProp:
    """Of an allocation at a location."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = kind
    prop.location.id = number
    return prop


def location(kind: Any = DEVICE, number: int = 0) -> driver.CUmemLocation:
    """Where memory is, or who may reach it."""
    where = driver.CUmemLocation()
    where.type = kind
    where.id = number
    return where


def access(kind: Any = DEVICE, number: int = 0, flags: Any = READ_WRITE) -> driver.CUmemAccessDesc:
    """What a location may do."""
    desc = driver.CUmemAccessDesc()
    desc.location.type = kind
    desc.location.id = number
    desc.flags = flags
    return desc


class Range(AbstractContextManager["Range"]):
    """A reservation, mapped from its start on by one handle for each (kind, pages).

    `handles` are this object's to release; give it others that are mapped here in `handles` too, or release them.
    """

    def __init__(self, page: int, *parts: tuple[Any, int], room: int = 0, grant: bool = True) -> None:
        self.page = page
        self.bytes = sum(count for _, count in parts) * page
        self.reserved = max(self.bytes, room * page)
        self.va = int(call("cuMemAddressReserve", self.reserved, page, 0, 0))
        self.handles: list[Any] = []
        at = self.va
        for kind, count in parts:
            self.handles.append(call("cuMemCreate", count * page, properties(kind), 0))
            call("cuMemMap", at, count * page, 0, self.handles[-1], 0)
            at += count * page
        if grant and parts:
            call("cuMemSetAccess", self.va, self.bytes, [access()], 1)

    def __exit__(self, *_: object) -> None:
        code("cuCtxSynchronize")
        at = 0
        while at < self.reserved:
            # A mapping's end is not known here, and no unmap takes a part of one: the first size that works is it.
            sizes = range(self.page, self.reserved - at + 1, self.page)
            unmap = driver.cuMemUnmap
            at += next((size for size in sizes if unmap(self.va + at, size)[0] == 0), self.page)
        for handle in self.handles:
            call("cuMemRelease", handle)
        call("cuMemAddressFree", self.va, self.reserved)


class Gate(AbstractContextManager["Gate"]):
    """A host function that holds its stream until the gate is opened: what is queued behind it has not begun.

    Nobody may wait for the stream while it is closed. A gate that nobody opens lets go by itself, and the test fails.
    """

    def __init__(self, stream: Any) -> None:
        self._opened = threading.Event()
        self._expired = False
        self._function = HostFunction(self._hold)
        self._function.queue(stream)

    def _hold(self) -> None:
        self._expired = not self._opened.wait(_GATE_SECONDS)

    def open(self) -> None:
        """Let the stream go on; opening twice does nothing more."""
        self._opened.set()

    def __exit__(self, *_: object) -> None:
        self.open()
        self._function.ran.wait(_GATE_SECONDS)
        assert not self._expired, "somebody waited for a stream behind a closed gate"


class HostFunction:
    """A Python function to queue, kept alive by this object until it ran."""

    def __init__(self, body: Any) -> None:
        self.ran = threading.Event()

        def run(_: object) -> None:
            body()
            self.ran.set()

        self._thunk = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run)
        self._function = driver.CUhostFn(_ptr=ctypes.addressof(self._thunk))

    def queue(self, stream: Any) -> None:
        """Queue it."""
        call("cuLaunchHostFunc", stream, self._function, 0)


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "memx_stamp": (ctypes.c_uint64,) * 4,
    "memx_verify": (ctypes.c_uint64,) * 5,
    "memx_touch": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "memx_fill": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "memx_copy": (ctypes.c_uint64,) * 3,
    "memx_axpy": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64),
    "memx_gather": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
}


class Kernels:
    """The test kernels by name: ``kernels("memx_touch", stream, va, nbytes, 1)``.

    Each has run once when this is made: a kernel's first launch may wait for the whole device.
    """

    def __init__(self) -> None:
        ptx = (Path(memx.__file__).parent / "kernels.ptx").read_bytes()
        self._module = call("cuModuleLoadData", ptx + b"\0")
        self._functions = {name: call("cuModuleGetFunction", self._module, name.encode()) for name in _SIGNATURES}
        scratch = int(call("cuMemAlloc", 256))
        self("memx_stamp", 0, scratch, 256, 0, 0)
        self("memx_verify", 0, scratch, 256, 0, 0, scratch)
        self("memx_touch", 0, scratch, 256, 1)
        self("memx_fill", 0, scratch, 256, 0)
        self("memx_copy", 0, scratch, scratch + 128, 128)
        self("memx_axpy", 0, scratch, scratch + 128, 0.0, 32)
        self("memx_gather", 0, scratch, 0, 0, 0)
        call("cuCtxSynchronize")
        call("cuMemFree", scratch)

    def __call__(self, name: str, stream: Any, *values: float) -> None:
        parameters = (values, _SIGNATURES[name])
        call("cuLaunchKernel", self._functions[name], 64, 1, 1, 128, 1, 1, 0, stream, parameters, 0)


def pattern(count: int, seed: int, offset: int = 0) -> np.ndarray:
    """What memx_stamp writes, from its definition."""
    at = np.arange(offset, offset + count, dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    word = ((at >> np.uint64(2)) * np.uint64(0x9E3779B1) + np.uint64(seed >> 32)) & mask
    word ^= np.uint64(seed & 0xFFFFFFFF)
    return ((word >> (np.uint64(8) * (at & np.uint64(3)))) & np.uint64(255)).astype(np.uint8)


def read(va: int, count: int) -> np.ndarray:
    """Bytes at a device address, once the legacy stream is done."""
    out = np.zeros(count, np.uint8)
    call("cuMemcpyDtoH", out.ctypes.data, va, count)
    return out


def write(va: int, data: np.ndarray) -> None:
    """Put bytes at a device address."""
    call("cuMemcpyHtoD", va, data.ctypes.data, data.nbytes)
    call("cuCtxSynchronize")
