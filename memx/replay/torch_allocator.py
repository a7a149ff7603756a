"""PyTorch's own CUDA allocator in memx's place, for replays side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import sim
from ..errors import InvalidStateError, InvalidValueError, OutOfMemoryError

__all__ = ["SETTINGS", "TorchAllocator", "set_up"]

#: What ``PYTORCH_CUDA_ALLOC_CONF`` says for each name on the command line.
SETTINGS = {
    "torch-native": "expandable_segments:False",
    "torch-expandable": "expandable_segments:True",
}

# What the runtime does besides, such as looking at contexts, is not the allocator's.
_COUNTED = ("cuMem", "cuEvent", "cuStream")


def set_up(name: str) -> None:
    """Choose PyTorch's settings; in a process that has not imported it yet."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = SETTINGS[name]


class TorchAllocator:
    """The part of :class:`memx._native.Resource` that a replay calls, done by PyTorch.

    Parameters
    ----------
    name : str
        One of :data:`SETTINGS`, for messages.
    device : int
        Ordinal.
    device_limit : int
        Bytes that PyTorch may hold, as a fraction of the device.
    own_calls : callable
        Driver calls that the replay made itself, which are not the allocator's.
    """

    def __init__(self, name: str, device: int, device_limit: int, own_calls: Callable[[], dict[str, int]]) -> None:
        try:
            import torch
        except ImportError as error:
            raise InvalidStateError(
                f"{name} is PyTorch's own allocator: install its CUDA build (pip install torch)"
            ) from error
        if not torch.cuda.is_available():
            raise InvalidStateError(
                f"PyTorch {torch.__version__} finds no CUDA device here; {name} needs its CUDA build"
            )
        self._torch = torch
        self._device = torch.device("cuda", device)
        torch.cuda.init()
        torch.cuda.set_device(device)
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, device_limit / total), device)
        torch.cuda.reset_peak_memory_stats(device)
        self._tensors: dict[int, Any] = {}
        self._pools: dict[str, Any] = {}
        self._stream = 0
        self._own_calls = own_calls
        self._calls_at_start = self._calls()

    def allocate(self, nbytes: int, stream: int, _align: int = 0, _placement: str = "", tag: int = 0) -> int:
        """Address of a new tensor of bytes."""
        if nbytes < 0 or nbytes >= 1 << 62:
            raise InvalidValueError(f"cannot allocate {nbytes} bytes")
        self._use(stream)
        cuda = self._torch.cuda
        try:
            with cuda.use_mem_pool(list(self._pools.values())[tag - 1]) if tag else nullcontext():
                tensor = self._torch.empty(nbytes, dtype=self._torch.uint8, device=self._device)
        except cuda.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from None
        address = int(tensor.data_ptr())
        if address:
            self._tensors[address] = tensor
        return address

    def free(self, address: int, stream: int | None = None) -> None:
        """Drop the tensor, recorded on the stream of the free if that is another."""
        tensor = self._tensors.pop(address, None)
        if tensor is None:
            raise InvalidStateError(f"0x{address:x} is not allocated")
        if stream is not None:
            tensor.record_stream(self._of(stream))

    def record_stream(self, address: int, stream: int) -> None:
        """As ``Tensor.record_stream``."""
        self._tensors[address].record_stream(self._of(stream))

    def note_wait(self, stream: int, on: int) -> None:
        """PyTorch learns of no waits."""

    def trim(self, _keep_bytes: int = 0) -> None:
        """As ``torch.cuda.empty_cache``."""
        self._torch.cuda.empty_cache()

    def begin_step(self) -> None:
        """PyTorch plays no plans."""

    def rebalance(self) -> None:
        """PyTorch has no host memory to move from."""

    def tag_id(self, name: str) -> int:
        """Tags are memory pools here."""
        if name not in self._pools:
            self._pools[name] = self._torch.cuda.MemPool()
        return 1 + list(self._pools).index(name)

    def pause(self, _tag: int, _keep: bool = True) -> None:
        """Refused."""
        raise InvalidStateError("PyTorch's allocator cannot pause a tag")

    def resume(self, _tag: int) -> None:
        """Refused."""
        raise InvalidStateError("PyTorch's allocator cannot resume a tag")

    def read(self, address: int, offset: int, into: npt.NDArray[np.uint8]) -> None:
        """Copy contents to the host."""
        tensor = self._tensors[address]
        into[:] = tensor[offset : offset + len(into)].cpu().numpy()

    def statistics(self) -> dict[str, Any]:
        """memx's keys, as far as PyTorch has them."""
        stats = self._torch.cuda.memory_stats(self._device)
        out: dict[str, Any] = {
            f"{name}_bytes.{when}": stats.get(f"{name}_bytes.all.{when}", 0)
            for name in ("requested", "allocated", "active", "reserved")
            for when in ("current", "peak")
        }
        out |= {"inactive_bytes.current": stats.get("inactive_split_bytes.all.current", 0)}
        out |= {"host_bytes.current": 0, "host_bytes.peak": 0, "migrated_in_bytes": 0, "migrated_out_bytes": 0}
        out["driver_calls"] = {name: count - self._calls_at_start.get(name, 0) for name, count in self._calls().items()}
        return out

    def reset_peak_statistics(self) -> None:
        """Set every peak to the current value."""
        self._torch.cuda.reset_peak_memory_stats(self._device)

    def check(self) -> None:
        """PyTorch has no self-check."""

    def close(self) -> None:
        """Give everything back."""
        self._use(0)
        self._tensors.clear()
        self._pools.clear()
        self._torch.cuda.synchronize(self._device)
        self._torch.cuda.empty_cache()

    def _calls(self) -> dict[str, int]:
        if not sim.active():
            return {}
        own = self._own_calls()
        return {name: count - own.get(name, 0) for name, count in sim.calls().items() if name.startswith(_COUNTED)}

    def _of(self, stream: int) -> Any:
        if stream == 0:
            return self._torch.cuda.default_stream(self._device)
        return self._torch.cuda.ExternalStream(stream, device=self._device)

    def _use(self, stream: int) -> None:
        if stream != self._stream:
            self._torch.cuda.set_stream(self._of(stream))
            self._stream = stream
