"""A mapped range, streams, and short names for what is done with them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from .conftest import Streams
from .machine import PAGE, Kernels, Range, access, call


class World:
    """A mapped range, streams, and short names for what is done with them."""

    def __init__(self, streams: Streams, kernels: Kernels, r: Range) -> None:
        self.streams = streams
        self.kernels = kernels
        self.r = r
        self.va = r.va
        self.a = streams.nonblocking()
        self.b = streams.nonblocking()

    def write(self, stream: Any, start: int = 0, count: int = PAGE) -> None:
        self.kernels("memx_touch", stream, self.va + start, count, 1)

    def read(self, stream: Any, start: int = 0, count: int = PAGE) -> None:
        self.kernels("memx_touch", stream, self.va + start, count, 0)

    def order(self, first: Any, then: Any) -> None:
        self.streams.order(first, then)

    def sync(self, stream: Any) -> None:
        call("cuStreamSynchronize", stream)


def in_thread(body: Callable[[], object]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def alias_of(w: World) -> Range:
    alias = Range((), room=1)
    call("cuMemMap", alias.va, PAGE, 0, w.r.handles[0], 0)
    call("cuMemSetAccess", alias.va, PAGE, [access()], 1)
    return alias


def host_function(body: Callable[[], object]) -> tuple[Any, int]:
    """The arguments of cuLaunchHostFunc that call a Python function."""
    function = _HOST_FUNCTION(lambda _: body() and None)
    _kept.append(function)
    return driver.CUhostFn(_ptr=ctypes.addressof(function)), 0


_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []
