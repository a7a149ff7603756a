"""The driver calls that a replay makes itself: streams, events, launches, waits, captures."""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

from ..errors import DriverError

__all__ = ["PER_THREAD", "STICKY", "Driver"]

#: The handle that means the calling thread's own default stream.
PER_THREAD = 2

#: Errors after which a context is of no more use.
STICKY = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720})

_PTX = Path(__file__).parent.parent / "kernels.ptx"
_NOT_FOUND = 500
_BLOCK = 256
_MOST_BLOCKS = 1024
_BYTES_A_THREAD = 16
_KERNELS = ("memx_stamp", "memx_verify", "memx_touch")


def _raise(call: str, code: Any) -> None:
    name = getattr(code, "name", str(code))
    raise DriverError(f"{call} failed with {name}", int(code), name, call)


class Driver:
    """A device's primary context, current in the thread that makes this, and the built-in kernels.

    Parameters
    ----------
    device : int
        Ordinal.
    """

    def __init__(self, device: int) -> None:
        self._calls: Counter[str] = Counter()
        self._do("cuInit", 0)
        self.device = self._do("cuDeviceGet", device)
        self._context = self._do("cuDevicePrimaryCtxRetain", self.device)
        self.make_current()
        self._module: Any = None
        self._functions: dict[str, int] = {}
        # One set of parameters is enough: events run one after another, and a launch copies them.
        self._values = (ctypes.c_uint64 * 5)()
        start = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * 5)(*[start + 8 * i for i in range(5)])
        self._parameters = ctypes.addressof(self._pointers)
        self._mismatches = 0
        self._count = ctypes.c_uint64()
        self._streams: list[int] = []
        self._edge: Any = None

    def calls(self) -> dict[str, int]:
        """What this object called, by function, but for launches."""
        return dict(self._calls)

    def make_current(self) -> None:
        """Bind the context to the calling thread."""
        self._do("cuCtxSetCurrent", self._context)

    def total_bytes(self) -> int:
        """Memory of the device."""
        return int(self._do("cuDeviceTotalMem", self.device))

    def load_kernels(self) -> None:
        """Load the kernels, and the counter that verification adds to."""
        self._module = self._do("cuModuleLoadData", _PTX.read_bytes() + b"\0")
        for name in _KERNELS:
            self._functions[name] = int(self._do("cuModuleGetFunction", self._module, name.encode()))
        self._mismatches = int(self._do("cuMemAllocHost", 8))
        self._count = ctypes.c_uint64.from_address(self._mismatches)
        self._count.value = 0

    def mismatches(self) -> int:
        """Bytes that verification found different so far; exact once its streams are synchronised."""
        return int(self._count.value)

    def create_stream(self, blocking: bool) -> int:
        """A new stream's handle; destroyed by :meth:`close`."""
        flags = cu.CUstream_flags.CU_STREAM_DEFAULT if blocking else cu.CUstream_flags.CU_STREAM_NON_BLOCKING
        handle = int(self._do("cuStreamCreate", flags.value))
        self._streams.append(handle)
        return handle

    def stamp(self, address: int, nbytes: int, seed: int, offset: int, stream: int) -> None:
        """Queue the writing of a seed's pattern."""
        self._launch("memx_stamp", nbytes, stream, address, nbytes, seed, offset)

    def verify(self, address: int, nbytes: int, seed: int, offset: int, stream: int) -> None:
        """Queue the comparison with a seed's pattern."""
        self._launch("memx_verify", nbytes, stream, address, nbytes, seed, offset, self._mismatches)

    def touch(self, address: int, nbytes: int, write: bool, stream: int) -> None:
        """Queue an access that needs the memory to be mapped and leaves its contents."""
        self._launch("memx_touch", nbytes, stream, address, nbytes, write)

    def _launch(self, kernel: str, nbytes: int, stream: int, *values: int) -> None:
        for i, value in enumerate(values):
            self._values[i] = value
        blocks = min(_MOST_BLOCKS, 1 + nbytes // (_BLOCK * _BYTES_A_THREAD))
        (code,) = cu.cuLaunchKernel(self._functions[kernel], blocks, 1, 1, _BLOCK, 1, 1, 0, stream, self._parameters, 0)
        if code:
            _raise("cuLaunchKernel", code)

    def wait(self, stream: int, on: int) -> None:
        """Later work on ``stream`` follows all work so far on ``on``."""
        if self._edge is None:
            self._edge = self._do("cuEventCreate", cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
        self._do("cuEventRecord", self._edge, on)
        self._do("cuStreamWaitEvent", stream, self._edge, 0)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for every stream of every thread."""
        if stream is None:
            self._do("cuCtxSynchronize")
        else:
            self._do("cuStreamSynchronize", stream)

    def begin_capture(self, stream: int) -> None:
        """Start a capture in the strictest mode, as frameworks do."""
        self._do("cuStreamBeginCapture", stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)

    def end_capture(self, stream: int) -> Any:
        """The captured graph."""
        return self._do("cuStreamEndCapture", stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether work queued on a stream goes into a graph instead of running."""
        status = self._do("cuStreamIsCapturing", stream)
        return bool(status != cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def launch_graph(self, graph: Any, stream: int) -> Any:
        """Instantiate a graph and queue it once; returns the executable."""
        executable = self._do("cuGraphInstantiate", graph, 0)
        self._do("cuGraphLaunch", executable, stream)
        return executable

    def destroy_graph(self, graph: Any, executable: Any = None) -> None:
        """Destroy a graph and its executable, if it has one."""
        if executable is not None:
            self._do("cuGraphExecDestroy", executable)
        self._do("cuGraphDestroy", graph)

    def close(self) -> None:
        """Give everything back; errors of a dead context are left alone."""
        for handle in self._streams:
            cu.cuStreamDestroy(handle)
        self._streams.clear()
        if self._edge is not None:
            cu.cuEventDestroy(self._edge)
            self._edge = None
        if self._mismatches:
            self._count = ctypes.c_uint64(self._count.value)
            cu.cuMemFreeHost(self._mismatches)
            self._mismatches = 0
        if self._module is not None:
            cu.cuModuleUnload(self._module)
            self._module = None
        cu.cuDevicePrimaryCtxRelease(self.device)

    def _do(self, call: str, *arguments: Any) -> Any:
        self._calls[call] += 1
        try:
            code, *values = getattr(cu, call)(*arguments)
        except RuntimeError as error:  # a function that this driver does not have
            raise DriverError(str(error), _NOT_FOUND, "CUDA_ERROR_NOT_FOUND", call) from None
        if code:
            _raise(call, code)
        return values[0] if values else None
