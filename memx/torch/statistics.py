"""PyTorch's statistics and snapshot functions, answered by memx.

All of ``torch.cuda``'s and ``torch.accelerator``'s functions about memory read a few functions of ``torch._C``; those
are put in place here, with the same keys and meanings. What has another meaning under memx:

- a *segment* is one handle of the driver's; all count as large;
- *inactive split* memory is what is free in handles that are partly used;
- ``num_alloc_retries``, ``num_oom_rejections``, ``num_sync_all_streams`` and the ``oversize`` and ``max_split_size``
  entries do not exist in memx and are 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import _native
from .snapshot import snapshot

__all__ = ["install"]

_Stat = dict[str, int]


def _stat(current: int = 0, peak: int = 0, allocated: int = 0, freed: int = 0) -> _Stat:
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}


def _pools(whole: _Stat, small: _Stat | None = None, large: _Stat | None = None) -> dict[str, _Stat]:
    return {"all": whole, "small_pool": small or _stat(), "large_pool": large or dict(whole)}


def memory_stats(device: int) -> dict[str, Any]:
    """The nested dictionary behind ``torch.cuda.memory_stats``."""
    native = _native.torch_resource(device)
    flows, statistics = native.flows(), native.statistics()
    calls = statistics["driver_calls"]

    def split(name: str) -> dict[str, _Stat]:
        return _pools(*(_stat(*flows[f"{name}.{pool}"]) for pool in ("all", "small", "large")))

    allocated = split("allocated_bytes")
    blocks = split("blocks")
    waiting = statistics["active_bytes.current"] - statistics["allocated_bytes.current"]
    active = split("allocated_bytes")
    active["all"]["current"] += waiting
    active["all"]["peak"] = statistics["active_bytes.peak"]
    active["all"]["freed"] -= waiting
    inactive_blocks, pending = native.free_blocks()
    active_blocks = split("blocks")
    active_blocks["all"]["current"] += pending
    active_blocks["all"]["freed"] -= pending
    active_blocks["all"]["peak"] = max(active_blocks["all"]["peak"], active_blocks["all"]["current"])
    return {
        "num_alloc_retries": 0,
        "num_ooms": flows["out_of_memory_errors"],
        "num_oom_rejections": 0,
        "num_sync_all_streams": 0,
        "num_device_alloc": calls.get("cuMemCreate", 0),
        "num_device_free": calls.get("cuMemRelease", 0),
        "max_split_size": -1,
        "allocation": blocks,
        "segment": _pools(_stat(*flows["segments"])),
        "active": active_blocks,
        "inactive_split": _pools(_stat(inactive_blocks, inactive_blocks)),
        "allocated_bytes": allocated,
        "reserved_bytes": _pools(_stat(*flows["reserved_bytes"])),
        "active_bytes": active,
        "inactive_split_bytes": _pools(_stat(statistics["inactive_bytes.current"], statistics["inactive_bytes.peak"])),
        "requested_bytes": split("requested_bytes"),
        "oversize_allocations": _stat(),
        "oversize_segments": _stat(),
        "reserved_bytes_by_private_pools": {},
        "host_bytes": {"current": statistics["host_bytes.current"], "peak": statistics["host_bytes.peak"]},
        "migrated_in_bytes": statistics["migrated_in_bytes"],
        "migrated_out_bytes": statistics["migrated_out_bytes"],
    }


def _reset_peak(device: int) -> None:
    _native.torch_resource(device).reset_peak_statistics()


def _reset_accumulated(device: int) -> None:
    _native.torch_resource(device).reset_accumulated_statistics()


def _empty_cache(*_: Any) -> None:
    for native in _native.torch_resources().values():
        native.trim(0)


class _History:
    """What ``torch.cuda.memory._record_memory_history`` switches."""

    def __init__(self) -> None:
        self.on = False

    def record(
        self,
        enabled: str | bool | None,
        _context: Any = None,
        _stacks: Any = None,
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        import torch

        self.on = bool(enabled)
        most = 0 if not isinstance(max_entries, int) or max_entries >= sys.maxsize else max_entries
        for device in range(torch.cuda.device_count()):
            native = _native.torch_resource(device)
            native.record_events(self.on and enabled != "state", most)
            if clear_history:
                native.drain_events()


def install(torch: Any) -> None:
    """Puts memx's functions into ``torch._C``."""
    history = _History()
    replaced: dict[str, Callable[..., Any]] = {
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": _reset_peak,
        "_cuda_resetAccumulatedMemoryStats": _reset_accumulated,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_record_memory_history": history.record,
        "_cuda_record_memory_history_legacy": history.record,
        "_cuda_isHistoryEnabled": lambda: history.on,
        "_accelerator_getDeviceStats": memory_stats,
        "_accelerator_resetPeakStats": _reset_peak,
        "_accelerator_resetAccumulatedStats": _reset_accumulated,
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_emptyCache": _empty_cache,
    }
    for name, function in replaced.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
