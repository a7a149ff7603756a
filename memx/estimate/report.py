"""What an estimate says, as plain values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..plan import layout
from ..trace import events as ev
from .history import Allocation, History, round_up
from .raw import Raw
from .replays import Needs
from .traffic import BUS_BYTES_PER_S, traffic
from .untrusted import untrusted

__all__ = ["add_device", "add_needs", "add_plan", "add_traffic", "basics"]

_LARGEST = 10


def basics(raw: Raw, history: History, exit_status: int) -> dict[str, Any]:
    """What the program's own allocations say.

    Returns
    -------
    dict
        As ``memx estimate --json`` prints it, without what the allocators make of it.
    """
    peak = history.at(history.peak_event)
    largest = sorted(peak, key=lambda one: -one.bytes)[:_LARGEST]
    begin, end = history.last_step()
    return {
        "program": raw.program,
        "exit_status": exit_status,
        "error": raw.error,
        "steps": raw.steps,
        "allocations": len(history.allocations),
        "peak_bytes": history.peak_bytes,
        "peak_at": _moment(history),
        "by_category": history.by_category(history.peak_event) if peak else {},
        "reserved_bytes": {},
        "smallest_device_bytes": {},
        "largest": [_buffer(one) for one in largest],
        "untrusted": untrusted(raw),
        "curve": {"step": len(history.steps), "events": end - begin, "points": history.curve()},
        "torch_counters": {f"{name}_bytes": nbytes for name, nbytes in raw.peaks.items()},
        "notes": _notes(raw),
    }


def _notes(raw: Raw) -> list[str]:
    """What a reader of the numbers must know about how far the program came."""
    if raw.steps == 0:
        return [
            "no optimizer of PyTorch made a step: the peak is that of what ran, without an optimizer's state. A "
            "program that looks at its losses may have left its loop, for they are zero here"
        ]
    if raw.steps == 1:
        return ["only one optimizer step ran: the next begins with the optimizer's state there, and may need more"]
    return []


def add_device(report: dict[str, Any], device_bytes: int) -> dict[str, Any]:
    """The part about the device asked for, added if it is not there."""
    device: dict[str, Any] = report.setdefault("device", {"bytes": device_bytes, "fits": {}, "host_bytes": None})
    return device


def add_needs(report: dict[str, Any], allocator: str, found: Needs, device_bytes: int | None) -> None:
    """Add what one allocator needs."""
    report["reserved_bytes"][allocator] = found.reserved_bytes
    report["smallest_device_bytes"][allocator] = found.smallest_bytes
    if device_bytes is not None:
        device = add_device(report, device_bytes)
        device["fits"][allocator] = found.smallest_bytes <= device_bytes
        if allocator == "memx":
            device["host_bytes"] = found.spilled_bytes


def add_traffic(report: dict[str, Any], raw: Raw, events: Sequence[ev.Event], device_bytes: int) -> None:
    """Add what crosses the bus in a step on a device that is smaller than the peak, or why that is not known."""
    device = add_device(report, device_bytes)
    unseen = raw.unseen
    if raw.missing:
        unseen = f"{raw.missing} allocations were too many to keep"
    elif not raw.operations:
        unseen = unseen or "no operations of PyTorch were seen on the device"
    if unseen:
        device["over_the_bus"] = {"unknown": unseen}
        return
    found = traffic(events, device_bytes)
    device["over_the_bus"] = {
        **found.as_json(),
        "assumed_bytes_per_second": BUS_BYTES_PER_S,
        "modelled_seconds": {
            name: None if nbytes is None else nbytes / BUS_BYTES_PER_S for name, nbytes in found.ways().items()
        },
    }


def add_plan(report: dict[str, Any], history: History, time_limit: float) -> None:
    """Add the height of a planned layout: streams in the order in which the program used them."""
    lifetimes = [(one.born, one.died, round_up(one.bytes)) for one in history.allocations]
    made = layout(lifetimes, time_limit=time_limit)
    report["planned_bytes"] = made.height


def _buffer(one: Allocation) -> dict[str, Any]:
    file, line, function, called, again = one.frame
    where = f"{os.path.relpath(file) if file.startswith(os.getcwd()) else file}:{line}" if file else ""
    return {
        "bytes": round_up(one.bytes),
        "category": one.category,
        "name": one.name,
        "where": where,
        "function": function,
        "call": called,
        "recomputed": again,
    }


def _moment(history: History) -> str:
    step = sum(end <= history.peak_event for end in history.steps)
    return f"step {step + 1}" if history.steps else "the whole run"
