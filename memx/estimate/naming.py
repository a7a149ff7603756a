"""Operations' names in PyTorch's record of allocations."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Naming"]


class Naming(TorchDispatchMode):
    """Marks what a thread allocates with the operation that does it, on the threads of backward passes too."""

    def __init__(self, torch: Any) -> None:
        super().__init__()
        self._set = torch._C._cuda_setMemoryMetadata

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self._set(function._schema.name.partition("::")[2])
        try:
            return function(*arguments, **(named or {}))
        finally:
            self._set("")
