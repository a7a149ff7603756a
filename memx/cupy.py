"""memx below CuPy: every array of the process, or those made in one block.

>>> memx.cupy.enable(device_limit="20GiB")  # doctest: +SKIP
>>> with memx.cupy.using(mr):  # doctest: +SKIP
...     a = cupy.zeros((1024, 1024))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _native, sim
from .conf import completed
from .errors import InvalidStateError, InvalidValueError, OutOfMemoryError
from .resource import MemoryResource

__all__ = ["allocator", "enable", "resource", "using"]

_CUDA_ERROR_MEMORY_ALLOCATION = 2

_lock = threading.Lock()
_settings: dict[str, Any] | None = None
_resources: dict[int, MemoryResource] = {}


def enable(
    device_limit: int | str | None = None,
    host_limit: int | str | None = None,
    *,
    reuse: str | None = None,
    oversubscribe: bool | None = None,
    page: int | str | None = None,
    below_pool: bool = False,
) -> None:
    """Make memx CuPy's allocator, on every device, from now on.

    What is not given comes from ``MEMX_CONF`` and, where that is silent too, has the default of
    :class:`memx.MemoryResource`. Arrays that exist keep their memory.

    Parameters
    ----------
    device_limit, host_limit : size, optional
        Most memory to hold for each device.
    reuse : {"default", "stream", "mutual"}, optional
        Which freed memory a stream may take.
    oversubscribe : bool, optional
        Whether arrays for which the device has no room are born on host pages.
    page : size, optional
        Bytes of the smallest handle.
    below_pool : bool
        Keep CuPy's own memory pool, with memx as the memory that it takes its chunks from.

    Raises
    ------
    InvalidStateError
        memx is enabled already: its settings are those of the first call.
    """
    global _settings
    import cupy

    settings = completed(
        {
            "device_limit": device_limit,
            "host_limit": host_limit,
            "reuse": reuse,
            "oversubscribe": oversubscribe,
            "page": page,
        }
    )
    with _lock:
        if _settings is not None:
            raise InvalidStateError(
                "memx.cupy is enabled already, with the settings of the first call; use memx.cupy.using(mr) for others"
            )
        _settings = settings
    try:
        resource()
    except BaseException:
        with _lock:
            _settings = None
        raise
    serve = _serve(resource, below_pool)
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(serve).malloc if below_pool else serve)


def resource(device: int | None = None) -> MemoryResource:
    """The memory resource below a device's arrays; default: the current device.

    Raises
    ------
    InvalidStateError
        :func:`enable` was not called.
    """
    with _lock:
        if _settings is None:
            raise InvalidStateError("memx is not below CuPy in this process: call memx.cupy.enable() first")
        index = _current_device() if device is None else device
        if index not in _resources:
            _resources[index] = MemoryResource(index, **_settings)
        return _resources[index]


def allocator(mr: MemoryResource, *, below_pool: bool = False) -> Callable[[int], Any]:
    """A function for ``cupy.cuda.set_allocator`` or, `below_pool`, for ``cupy.cuda.MemoryPool``.

    Memory is taken and given back in the order of the stream that is CuPy's current one at the allocation. Out of
    memory is ``cupy.cuda.memory.OutOfMemoryError`` (below a pool, the error that makes the pool give its chunks back
    and try again), with memx's own as its cause.

    Raises
    ------
    InvalidValueError
        `mr` is lazy: its memory may be used inside :meth:`MemoryResource.resident` only, which CuPy does not know of.
    """
    if mr.is_lazy:
        raise InvalidValueError("CuPy uses its memory at any time: make the resource with lazy=False")
    return _serve(lambda: mr, below_pool)


@contextmanager
def using(mr: MemoryResource) -> Iterator[None]:
    """Arrays that this thread makes in the block live on a resource's memory."""
    import cupy

    with cupy.cuda.using_allocator(allocator(mr)):
        yield


def _serve(choose: Callable[[], MemoryResource], below_pool: bool) -> Callable[[int], Any]:
    from cupy.cuda import memory, runtime

    def allocate(nbytes: int) -> Any:
        mr = choose()
        device = mr.device_id
        if nbytes == 0:
            return memory.MemoryPointer(memory.UnownedMemory(0, 0, None, device), 0)
        try:
            owned = _native.Allocation(mr.native, nbytes, _current_stream())
        except OutOfMemoryError as error:
            if below_pool:
                raise runtime.CUDARuntimeError(_CUDA_ERROR_MEMORY_ALLOCATION) from error
            held = mr.statistics()["allocated_bytes.current"]
            raise memory.OutOfMemoryError(nbytes, held, mr.native.device_limit()) from error
        return memory.MemoryPointer(memory.UnownedMemory(owned.address, nbytes, owned, device), 0)

    return allocate


# CuPy brings its own runtime, which does not start on the simulated driver: there the current device and stream are the
# first and the default.
def _current_stream() -> int:
    if sim.active():
        return 0
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def _current_device() -> int:
    if sim.active():
        return 0
    from cupy.cuda import runtime

    return int(runtime.getDevice())
