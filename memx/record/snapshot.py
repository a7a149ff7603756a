"""A recording in the form of ``torch.cuda.memory._snapshot``, which PyTorch's viewer reads."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidValueError
from ..trace.snapshot_form import document, entries
from .protocol import Row

__all__ = ["Snapshot"]

_MOST_EVENTS = 1_000_000
_ACTIONS = {0: "alloc", 1: "free", 4: "oom"}
_MARK = 5
_BEFORE = -1
Frames = list[dict[str, Any]]


class Snapshot:
    """Gathers the latest events of a process, and what is live.

    Parameters
    ----------
    path : Path
        Of the pickle.

    Attributes
    ----------
    segments : list of dict or None
        What the process said at its end; None of one that was killed, whose segments are then its live blocks.
    """

    def __init__(self, path: Path) -> None:
        self.segments: list[dict[str, Any]] | None = None
        self._path = path
        self._traces: dict[int, deque[dict[str, Any]]] = {}
        self._live: dict[int, tuple[int, int, int]] = {}
        self._stacks: dict[int, Frames] = {}
        self._now: dict[int, int] = {}  # by device, the stack that runs
        self._made: dict[int, int] = {}  # by address, the stack that allocated it

    def take(self, row: Row, device: int, details: Mapping[int, Any]) -> None:
        """Add an event; ``details`` say what marks stand for."""
        kind, address, nbytes, stream, other, time_us = row
        action = _ACTIONS.get(kind, "")
        stack = self._now.get(device, _BEFORE)
        if kind == _MARK and details.get(other, ("",))[0] == "stack":
            self._mark(device, *details[other][1:])
        elif action == "alloc":
            self._live[address] = (nbytes, stream, device)
            self._made[address] = stack
        elif action == "free":
            self._live.pop(address, None)
            stack = self._made.pop(address, 0)
        events = self._traces.setdefault(device, deque(maxlen=_MOST_EVENTS))
        events.extend(entries(action, address, nbytes, stream, time_us, frames=stack))

    def _mark(self, device: int, stack: int, frames: list[tuple[str, int, str]] | None = None) -> None:
        if frames is not None:
            told = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
            self._stacks.setdefault(stack, told)
            if device not in self._now:  # it was running before it could be told
                self._stacks.setdefault(_BEFORE, told)
        self._now[device] = stack

    def as_dict(self) -> dict[str, Any]:
        """What ``torch.cuda.memory._snapshot`` returns."""
        segments = self.segments
        if segments is None:
            segments = [_segment(address, *live) for address, live in sorted(self._live.items())]
        for segment in segments:
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = self._stacks.get(self._made.get(block["address"], 0), [])
        for events in self._traces.values():
            for entry in events:
                entry["frames"] = self._stacks.get(entry["frames"], [])
        devices = max([*self._traces, *(segment["device"] for segment in segments), 0]) + 1
        return document(segments, [list(self._traces.get(device, ())) for device in range(devices)])

    def write(self) -> None:
        """Write the pickle.

        Raises
        ------
        InvalidValueError
            The file cannot be written.
        """
        try:
            self._path.write_bytes(pickle.dumps(self.as_dict()))
        except OSError as error:
            raise InvalidValueError(f"{self._path}: {error.strerror or error}") from None


def _segment(address: int, nbytes: int, stream: int, device: int) -> dict[str, Any]:
    block = {"address": address, "size": nbytes, "requested_size": nbytes, "state": "active_allocated", "frames": []}
    return {
        "device": device,
        "address": address,
        "total_size": nbytes,
        "allocated_size": nbytes,
        "active_size": nbytes,
        "requested_size": nbytes,
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": True,
        "frames": [],
        "blocks": [{**block, "user_metadata": ""}],
    }
