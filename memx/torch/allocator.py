"""Puts memx below PyTorch's CUDA tensors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _native
from ..conf import completed
from ..errors import InvalidStateError
from ..resource import MemoryResource, in_bytes

__all__ = ["disable", "enable", "enabled", "pool", "resource", "step"]

_lock = threading.Lock()
_allocator: Any = None  # of PyTorch; kept, because PyTorch keeps only a pointer
_global = False
_faces: dict[int, MemoryResource] = {}


def enable(
    device_limit: int | str | None = None,
    host_limit: int | str | None = None,
    *,
    reuse: str | None = None,
    oversubscribe: bool | None = None,
    page: int | str | None = None,
) -> None:
    """Make memx PyTorch's allocator for every CUDA tensor of the process.

    What is not given comes from ``MEMX_CONF`` and, where that is silent too, has the default of
    :class:`memx.MemoryResource`. Limits hold for each device.

    Parameters
    ----------
    device_limit : size, optional
        Most device memory to hold on each device.
    host_limit : size, optional
        Most host memory to hold for each device.
    reuse : {"default", "stream", "mutual"}, optional
        Which freed memory a stream may take.
    oversubscribe : bool, optional
        Whether tensors for which the device has no room are born on host pages.
    page : size, optional
        Bytes of the smallest handle.

    Raises
    ------
    InvalidStateError
        PyTorch has used CUDA already, or memx or another allocator is enabled already.
    DriverError
        There is no driver; the message names :func:`memx.simulate`.
    """
    global _global
    import torch

    from . import statistics

    with _lock:
        if _global:
            raise InvalidStateError(
                "memx.torch is enabled already; its settings are those of the first call, for the whole process"
            )
        if torch.cuda.is_initialized():
            raise InvalidStateError(
                "PyTorch has used CUDA already, and its allocator cannot be changed any more: call memx.torch.enable() "
                "before the first CUDA tensor, or start the script with python -m memx.torch"
            )
        allocator = _make(
            {
                "device_limit": device_limit,
                "host_limit": host_limit,
                "reuse": reuse,
                "oversubscribe": oversubscribe,
                "page": page,
            },
            whole=True,
        )
        try:
            torch.cuda.memory.change_current_allocator(allocator)
        except RuntimeError as error:
            raise InvalidStateError(f"PyTorch refused memx as its allocator: {error}") from error
        statistics.install(torch)
        _global = True


def enabled() -> bool:
    """Whether memx is PyTorch's allocator in this process."""
    return _global


def disable() -> None:
    """Refused: PyTorch cannot change its allocator once CUDA is in use, and tensors on memx's memory need memx.

    Raises
    ------
    InvalidStateError
        Always.
    """
    raise InvalidStateError(
        "memx.torch cannot be disabled: PyTorch changes its allocator only before the first use of CUDA, and the "
        "tensors that exist are memx's; start a new process without memx.torch.enable()"
    )


def resource(device: int | str | Any | None = None) -> MemoryResource:
    """The memory resource below a device's tensors, for hints, limits, recording and trimming.

    Parameters
    ----------
    device : int, str, torch.device, optional
        Default: PyTorch's current device.

    Raises
    ------
    InvalidStateError
        memx is not below PyTorch in this process.
    """
    import torch

    if _allocator is None:
        raise InvalidStateError("memx is not below PyTorch in this process: call memx.torch.enable() first")
    index = device if isinstance(device, int) else torch.cuda._utils._get_device_index(device, optional=True)
    with _lock:
        if index not in _faces:
            _faces[index] = MemoryResource._around(_native.torch_resource(index), index)
        return _faces[index]


def step() -> None:
    """A safe point, such as the end of a training step: tensors that were born on the host come to the device.

    They come while there is room, on every device. The caller promises that no thread queues work until this returns;
    it waits for all work of the devices.

    Raises
    ------
    InvalidStateError
        A stream is being captured, or memx is not PyTorch's allocator.
    """
    if not _global:
        raise InvalidStateError("memx is not PyTorch's allocator in this process: call memx.torch.enable() first")
    for native in _native.torch_resources().values():
        native.rebalance()


@contextmanager
def pool(
    device_limit: int | str | None = None,
    host_limit: int | str | None = None,
    *,
    oversubscribe: bool | None = None,
    page: int | str | None = None,
    device: int | str | Any | None = None,
) -> Iterator[Any]:
    """Tensors that this thread makes in the block live on memx's memory, under PyTorch's own allocator.

    PyTorch's allocator asks memx for segments and cuts tensors from them; its statistics, snapshots and errors stay its
    own. The segments come back when the tensors and the yielded pool are gone. Settings are those of the first use in
    the process; parameters are those of :func:`enable`.

    Yields
    ------
    torch.cuda.MemPool
    """
    import torch

    with _lock:
        if _allocator is None:
            _make(
                {"device_limit": device_limit, "host_limit": host_limit, "oversubscribe": oversubscribe, "page": page},
                whole=False,
            )
        elif any(setting is not None for setting in (device_limit, host_limit, oversubscribe, page)):
            raise InvalidStateError("memx.torch has its settings already, for the whole process: leave them out here")
        made = torch.cuda.MemPool(_allocator.allocator())
    with torch.cuda.use_mem_pool(made, device=device):
        yield made


def _make(given: dict[str, Any], whole: bool) -> Any:
    """PyTorch's handle of memx's functions. `whole`: memx serves every tensor, and so hears of every capture."""
    import torch

    global _allocator
    settings = completed(given)
    device_bytes, host_bytes, page_bytes = in_bytes(
        0, settings.get("device_limit"), settings.get("host_limit"), settings.get("page")
    )
    _native.torch_configure(
        device_bytes,
        host_bytes,
        settings.get("reuse", "default"),
        settings.get("oversubscribe", True),
        page_bytes,
        whole,
    )
    malloc = "memx_torch_malloc" if whole else "memx_torch_malloc_segment"
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_native.__file__, malloc, "memx_torch_free")
    for name, address in _native.torch_hooks().items():
        getattr(allocator._allocator, name)(address)
    _allocator = allocator
    return allocator
