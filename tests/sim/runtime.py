"""The CUDA runtime's C interface, as far as more than one test needs it."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from ctypes import byref, c_size_t, c_void_p

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4


def allocate(runtime: ctypes.CDLL, nbytes: int) -> c_void_p:
    """Device memory."""
    out = c_void_p()
    assert runtime.cudaMalloc(byref(out), c_size_t(nbytes)) == 0
    return out


class Size(ctypes.Structure):
    """dim3."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Kernel(AbstractContextManager["Kernel"]):
    """A kernel that a compiled program would have registered as it was loaded."""

    def __init__(self, runtime: ctypes.CDLL, name: bytes) -> None:
        self.host = ctypes.create_string_buffer(8)
        self._runtime = runtime
        self._names = ctypes.create_string_buffer(name)
        register = getattr(runtime, "__cudaRegisterFatBinary")
        register.restype = c_void_p
        self._image = c_void_p(register(self._names))
        getattr(runtime, "__cudaRegisterFunction")(
            self._image, self.host, None, self._names, -1, None, None, None, None, None
        )

    def launch(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        shared: int = 0,
        stream: c_void_p | None = None,
    ) -> int:
        """Launch it; the code."""
        return int(self._runtime.cudaLaunchKernel(self.host, Size(*grid), Size(*block), None, c_size_t(shared), stream))

    def __exit__(self, *_: object) -> None:
        getattr(self._runtime, "__cudaUnregisterFatBinary")(self._image)
