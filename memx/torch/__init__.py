"""memx below PyTorch: as its allocator for every tensor, or for the tensors made in one block.

>>> import memx
>>> memx.torch.enable(device_limit="20GiB")  # doctest: +SKIP

must run before PyTorch first uses CUDA. ``python -m memx.torch script.py`` does it for a script that is not changed,
with the settings in ``MEMX_CONF``.
"""

from __future__ import annotations

from .allocator import disable, enable, enabled, pool, resource, step

__all__ = ["disable", "enable", "enabled", "pool", "resource", "step"]
