"""The driver API with exceptions in place of codes, and mapped ranges that clean up after themselves."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

import memx

PAGE = 64 << 10
READ_WRITE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
READ = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
NO_ACCESS = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
HOST_NUMA = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA
HOST_NUMA_CURRENT = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
NON_BLOCKING = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
LEGACY, PER_THREAD = 1, 2


class DriverError(Exception):
    """A call's code, as its name without ``CUDA_ERROR_``."""

    def __init__(self, code: driver.CUresult) -> None:
        super().__init__(code.name)
        self.name = code.name.removeprefix("CUDA_ERROR_")


def call(name: str, *arguments: Any) -> Any:
    """Call a driver function; its result, or a DriverError."""
    code, *results = getattr(driver, name)(*arguments)
    if int(code):
        raise DriverError(code)
    return results[0] if len(results) == 1 else tuple(results)


def code(name: str, *arguments: Any) -> str:
    """Call a driver function; the name of its code."""
    return getattr(driver, name)(*arguments)[0].name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")


def set_current(device: int = 0) -> Any:
    context = call("cuDevicePrimaryCtxRetain", device)
    call("cuCtxSetCurrent", context)
    return context


def properties(kind: Any = DEVICE, number: int = 0) -> driver.CUmemAllocationProp:
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = kind
    prop.location.id = number
    return prop


def access(kind: Any = DEVICE, number: int = 0, flags: Any = READ_WRITE) -> driver.CUmemAccessDesc:
    desc = driver.CUmemAccessDesc()
    desc.location.type = kind
    desc.location.id = number
    desc.flags = flags
    return desc


class Range(AbstractContextManager["Range"]):
    """A reservation, mapped from its start by one handle a list entry, each of so many pages."""

    def __init__(
        self, pages: tuple[int, ...] = (1,), kind: Any = DEVICE, *, grant: bool = True, room: int | None = None
    ) -> None:
        self.bytes = sum(pages) * PAGE
        self.reserved = (room or sum(pages)) * PAGE
        self.va = int(call("cuMemAddressReserve", self.reserved, 0, 0, 0))
        self.handles = []
        at = self.va
        for count in pages:
            handle = call("cuMemCreate", count * PAGE, properties(kind), 0)
            call("cuMemMap", at, count * PAGE, 0, handle, 0)
            self.handles.append(handle)
            at += count * PAGE
        if grant and pages:
            call("cuMemSetAccess", self.va, self.bytes, [access()], 1)

    def __exit__(self, *_: object) -> None:
        code("cuCtxSynchronize")
        for at in range(self.va, self.va + self.reserved, PAGE):
            for end in range(at + PAGE, self.va + self.reserved + 1, PAGE):
                if code("cuMemUnmap", at, end - at) == "SUCCESS":
                    break
        for handle in self.handles:
            code("cuMemRelease", handle)
        call("cuMemAddressFree", self.va, self.reserved)


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "memx_stamp": (ctypes.c_uint64,) * 4,
    "memx_verify": (ctypes.c_uint64,) * 5,
    "memx_touch": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "memx_fill": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "memx_copy": (ctypes.c_uint64,) * 3,
    "memx_axpy": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64),
    "memx_gather": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "unheard_of": (),
}


class Kernels:
    """The built-in kernels by name: ``kernels("memx_touch", stream, va, nbytes, 1)``."""

    def __init__(self) -> None:
        ptx = (Path(memx.__file__).parent / "kernels.ptx").read_bytes()
        self._modules = [call("cuModuleLoadData", ptx + b"\0"), call("cuModuleLoadData", b"unheard_of\0")]
        self._functions = {
            name: call("cuModuleGetFunction", self._modules[name == "unheard_of"], name.encode())
            for name in _SIGNATURES
        }

    def __call__(self, name: str, stream: Any, *values: float) -> None:
        call("cuLaunchKernel", self._functions[name], 1, 1, 1, 32, 1, 1, 0, stream, (values, _SIGNATURES[name]), 0)

    def code(self, name: str, stream: Any, *values: float) -> str:
        try:
            self(name, stream, *values)
        except DriverError as error:
            return error.name
        return "SUCCESS"


def pattern(count: int, seed: int, offset: int = 0) -> np.ndarray:
    """What memx_stamp writes, from its definition."""
    at = np.arange(offset, offset + count, dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    word = ((at >> np.uint64(2)) * np.uint64(0x9E3779B1) + np.uint64(seed >> 32)) & mask
    word ^= np.uint64(seed & 0xFFFFFFFF)
    return ((word >> (np.uint64(8) * (at & np.uint64(3)))) & np.uint64(255)).astype(np.uint8)


def read(va: int, count: int) -> np.ndarray:
    out = np.zeros(count, np.uint8)
    call("cuMemcpyDtoH", out.ctypes.data, va, count)
    return out


def write(va: int, data: np.ndarray) -> None:
    call("cuMemcpyHtoD", va, data.ctypes.data, data.nbytes)


_PRELUDE = """
import ctypes, gc, os, sys, threading
import numpy as np
import memx
from memx import sim
memx.simulate(**{options!r})
from sim.machine import *
if {start!r}:
    call("cuInit", 0)
    context = set_current()
    kernels = Kernels()
"""


def isolated(script: str, *, start: bool = True, timeout: float = 60, **options: object) -> str:
    """Run a script on a simulated device of its own, in a process of its own; its output."""
    options = {"memory": "64MiB", "host_memory": "64MiB", "page": PAGE, **options}
    root = Path(memx.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-c", _PRELUDE.format(options=options, start=start) + script],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=root,
        env={"PYTHONPATH": f"{root}:{Path(__file__).parents[1]}", "PATH": "/usr/bin:/bin"},
    )
    assert result.returncode == 0, result.stderr + result.stdout
    assert result.stderr == ""
    return result.stdout
