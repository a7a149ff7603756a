"""A snapshot of memx's memory in the form of ``torch.cuda.memory._snapshot``, which PyTorch's viewer reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .. import _native
from ..trace.snapshot_form import document, entries

__all__ = ["snapshot"]

_STATES = {"allocated": "active_allocated", "pending": "active_pending_free", "free": "inactive"}
_POOL = re.compile(r"torch pool (\d+):(\d+)")


def snapshot(_pool: Any = None) -> dict[str, Any]:
    """Segments, blocks and recorded events of every device."""
    import torch

    natives = _native.torch_resources()
    traces: list[list[dict[str, Any]]] = [[] for _ in range(torch.cuda.device_count())]
    segments: list[dict[str, Any]] = []
    for device, native in natives.items():
        segments += _segments(device, native)
        traces[device] = list(_trace(native))
    return document(segments, traces)


def _segments(device: int, native: _native.Resource) -> Iterator[dict[str, Any]]:
    """Runs of blocks side by side with one tag and one place; the place is an extra key."""
    segment: dict[str, Any] | None = None
    for address, size, requested, state, place, tag, stream in native.blocks():
        if place == "unbacked":
            continue
        pool = _pool_id(native.tag_name(tag)) if tag else (0, 0)
        kind = (pool, place)
        if segment and (segment["address"] + segment["total_size"] != address or segment["kind"] != kind):
            del segment["kind"]
            yield segment
            segment = None
        if segment is None:
            segment = {
                "device": device,
                "address": address,
                "total_size": 0,
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "stream": stream,
                "segment_type": "large",
                "segment_pool_id": pool,
                "is_expandable": True,
                "frames": [],
                "blocks": [],
                "place": place,
                "kind": kind,
            }
        segment["total_size"] += size
        if state == "allocated":
            segment["allocated_size"] += size
            segment["requested_size"] += requested
        if state != "free":
            segment["active_size"] += size
        segment["blocks"].append(
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": _STATES[state],
                "frames": [],
                "user_metadata": "",
            }
        )
    if segment:
        del segment["kind"]
        yield segment


def _pool_id(tag: str) -> tuple[int, int]:
    match = _POOL.fullmatch(tag)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _trace(native: _native.Resource) -> Iterator[dict[str, Any]]:
    for action, address, nbytes, stream, tag, time_us in native.recorded_events():
        pool = _pool_id(native.tag_name(tag)) if tag and action in ("alloc", "free", "oom") else (0, 0)
        free = max(0, native.device_limit() - _reserved(native)) if action == "oom" else 0
        yield from entries(action, address, nbytes, stream, time_us, device_free=free, pool_id=pool)


def _reserved(native: _native.Resource) -> int:
    return int(native.statistics()["reserved_bytes.current"])
