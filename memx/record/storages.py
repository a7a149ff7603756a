"""Where tensors have their memory."""

from __future__ import annotations

from typing import Any

__all__ = ["cuda_storage"]


def cuda_storage(tensor: Any) -> tuple[int, int] | None:
    """Address and device of a CUDA tensor's storage, or of its local part if it is a sharded one; None: it has none."""
    local = getattr(tensor, "_local_tensor", tensor)
    if not local.is_cuda:
        return None
    try:
        return local.untyped_storage().data_ptr(), local.device.index
    except (RuntimeError, NotImplementedError):  # some subclasses raise
        return None
