"""What the tensors of a program hold, by arithmetic that knows nothing of any allocator.

It follows what operators return and when the last owner of a storage goes. What an operator uses inside and frees
again, it cannot see.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Arithmetic(TorchDispatchMode):
    """The bytes of the storages on a kind of device that operators returned and that are still owned.

    Parameters
    ----------
    device : str
    granule : int
        Each is rounded up to a multiple of it.
    """

    def __init__(self, device: str = "cuda", granule: int = 512) -> None:
        super().__init__()
        self._device = device
        self._granule = granule
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        out = function(*arguments, **(named or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == self._device:
                self._add(leaf.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = -(-storage.nbytes() // self._granule) * self._granule
        self.now += self._sizes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
