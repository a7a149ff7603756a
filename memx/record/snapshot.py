"""A recording in the form of ``torch.cuda.memory._snapshot``, which PyTorch's viewer reads."""

from __future__ import annotations

import pickle
from collections import deque
from pathlib import Path
from typing import Any

from ..errors import InvalidValueError
from ..trace.snapshot_form import document, entries
from .protocol import Row

__all__ = ["Snapshot"]

_MOST_EVENTS = 1_000_000
_ACTIONS = {0: "alloc", 1: "free", 4: "oom"}


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

    def take(self, row: Row, device: int) -> None:
        """Add an event."""
        kind, address, nbytes, stream, _, time_us = row
        action = _ACTIONS.get(kind, "")
        if action == "alloc":
            self._live[address] = (nbytes, stream, device)
        elif action == "free":
            self._live.pop(address, None)
        events = self._traces.setdefault(device, deque(maxlen=_MOST_EVENTS))
        events.extend(entries(action, address, nbytes, stream, time_us))

    def as_dict(self) -> dict[str, Any]:
        """What ``torch.cuda.memory._snapshot`` returns."""
        segments = self.segments
        if segments is None:
            segments = [_segment(address, *live) for address, live in sorted(self._live.items())]
        for segment in segments:
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
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
