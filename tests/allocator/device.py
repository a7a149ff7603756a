"""Queue memx's test kernels on a device, and what they should leave behind."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from cuda.bindings import driver

import memx

NON_BLOCKING = 1


def ok(result: tuple) -> object:
    code, *rest = result
    assert int(code) == 0, code
    return rest[0] if rest else None


def pattern(seed: int, nbytes: int, offset: int = 0) -> np.ndarray:
    """Bytes that the stamp kernel writes: an independent implementation of the rule in memx_sim.h."""
    b = np.arange(offset, offset + nbytes, dtype=np.uint64)
    k = (b >> 2).astype(np.uint32)
    with np.errstate(over="ignore"):
        word = (k * np.uint32(0x9E3779B1) + np.uint32(seed >> 32)) ^ np.uint32(seed & 0xFFFFFFFF)
    return ((word >> ((b & 3) * 8).astype(np.uint32)) & 0xFF).astype(np.uint8)


class Kernels:
    """The kernels of ``memx/kernels.ptx`` and a counter of mismatching bytes."""

    def __init__(self) -> None:
        ok(driver.cuInit(0))
        self.context = ok(driver.cuDevicePrimaryCtxRetain(0))
        ok(driver.cuCtxSetCurrent(self.context))
        self.module = ok(driver.cuModuleLoadData(Path(memx.__file__).with_name("kernels.ptx").read_bytes() + b"\0"))
        self.functions = {
            name: ok(driver.cuModuleGetFunction(self.module, name.encode()))
            for name in ("memx_stamp", "memx_verify", "memx_touch")
        }
        self.counter = int(ok(driver.cuMemAllocHost(8)))
        ctypes.memset(self.counter, 0, 8)

    def attach(self) -> None:
        """Make the device's context current in this thread."""
        ok(driver.cuCtxSetCurrent(self.context))

    def launch(self, name: str, stream: int, *args: int) -> None:
        kinds = (ctypes.c_uint64,) * len(args)
        ok(driver.cuLaunchKernel(self.functions[name], 1, 1, 1, 32, 1, 1, 0, stream, (args, kinds), 0))

    def stamp(self, stream: int, address: int, nbytes: int, seed: int) -> None:
        self.launch("memx_stamp", stream, address, nbytes, seed, 0)

    def verify(self, stream: int, address: int, nbytes: int, seed: int) -> None:
        self.launch("memx_verify", stream, address, nbytes, seed, 0, self.counter)

    @property
    def mismatches(self) -> int:
        return ctypes.c_uint64.from_address(self.counter).value

    def synchronize(self) -> None:
        ok(driver.cuCtxSynchronize())

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return int(ok(driver.cuStreamCreate(flags)))

    def destroy(self, stream: int) -> None:
        ok(driver.cuStreamDestroy(stream))

    def run_callbacks(self) -> None:
        """Wait until what the driver calls back so far, on a thread of its own and one by one, has been called."""
        stream = self.stream()
        ok(driver.cuLaunchHostFunc(stream, ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p).value, 0))
        ok(driver.cuStreamSynchronize(stream))
        self.destroy(stream)

    def order(self, stream: int, on: int) -> None:
        """Later work on `stream` follows all work so far on `on`."""
        event = ok(driver.cuEventCreate(2))
        ok(driver.cuEventRecord(event, on))
        ok(driver.cuStreamWaitEvent(stream, event, 0))
        ok(driver.cuEventDestroy(event))
