"""The form of PyTorch's memory snapshots, as far as memx writes them: the document, and the entries of an event."""

from __future__ import annotations

from typing import Any

__all__ = ["document", "entries"]


def document(segments: list[dict[str, Any]], traces: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """What ``torch.cuda.memory._snapshot`` returns; `traces` has a list a device."""
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {"backend": "memx", "expandable_segments": True},
        "external_annotations": [],
        "host_segments": [],
        "host_traces": [],
    }


def entries(
    action: str, address: int, nbytes: int, stream: int, time_us: int, *, device_free: int = 0, **more: Any
) -> list[dict[str, Any]]:
    """The entries of a trace for one event, ``"alloc"``, ``"free"`` or ``"oom"``; none for others.

    Parameters
    ----------
    device_free : int
        Bytes, of an ``"oom"``.
    **more
        Further keys of each entry.
    """
    entry = {
        "size": nbytes,
        "stream": stream,
        "time_us": time_us,
        "frames": [],
        "compile_context": "N/A",
        "user_metadata": "",
        **more,
    }
    if action == "alloc":
        return [{"action": "alloc", "addr": address, **entry}]
    if action == "free":
        return [{"action": kind, "addr": address, **entry} for kind in ("free_requested", "free_completed")]
    return [{"action": "oom", "device_free": device_free, **entry}] if action == "oom" else []
