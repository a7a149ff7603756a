"""What an estimated process writes down, as it goes from there to the process that estimates."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ALLOC", "FREE", "Frame", "Raw"]

ALLOC, FREE = 0, 1
#: Functions of PyTorch that say nothing of what is done.
_WRAPPERS = {"_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper", "__torch_function__", "inner", "_fn"}

#: File, line and function of the program's own; the function of PyTorch that it called; whether a checkpoint's forward
#: pass was being run again.
Frame = tuple[str, int, str, str, bool]


@dataclass
class Raw:
    """One process's allocations.

    Attributes
    ----------
    program : str
    steps : int
        Of the optimizer that stepped first.
    events : list of (kind, address, bytes, stream, frame)
        As the program asked; ``frame`` is an index.
    frames : list of Frame
    marks : list of (allocations, frees, kind, what)
        How many there were when something happened.
    names : dict
        Of parameters and buffers, by address.
    peaks : dict
        PyTorch's own counters: "requested", "allocated" and "reserved" bytes.
    kernels : dict
        Launches by name; only the simulated device counts them.
    notes : list of str
    error : str
        What ended the program, if something did.
    missing : int
        Allocations that were forgotten because there were too many.
    """

    program: str = ""
    steps: int = 0
    events: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    marks: list[tuple[int, int, str, dict[str, Any]]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    missing: int = 0

    def take(self, entries: list[dict[str, Any]], torch: Path) -> None:
        """Add what PyTorch recorded; ``torch`` is its folder."""
        known: dict[Frame, int] = {}
        for entry in entries:
            action = entry["action"]
            if action == "alloc":
                frame = _frame(entry.get("frames", ()), str(torch) + os.sep, entry.get("user_metadata") or "")
                number = known.setdefault(frame, len(known))
                self.events.append((ALLOC, entry["addr"], entry["size"], entry["stream"], number))
            elif action == "free_requested":
                self.events.append((FREE, entry["addr"], entry["size"], entry["stream"], -1))
        self.frames = list(known)
        allocations = sum(event[0] == ALLOC for event in self.events)
        self.missing = max(0, self.marks[-1][0] - allocations) if self.marks else 0

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Raw:
        """What :meth:`as_json` made, read back."""
        raw = cls(**fields)
        raw.events = [(e[0], e[1], e[2], e[3], e[4]) for e in raw.events]
        raw.frames = [(f[0], f[1], f[2], f[3], f[4]) for f in raw.frames]
        raw.marks = [(m[0], m[1], m[2], m[3]) for m in raw.marks]
        raw.names = {int(address): name for address, name in raw.names.items()}
        return raw


def _frame(frames: Any, torch: str, operation: str) -> Frame:
    """The innermost frame that is the program's own, or of a library above PyTorch."""
    called = operation
    again = False
    own: tuple[str, int, str] | None = None
    for frame in frames:
        name = frame["filename"]
        if name.startswith(torch):
            again = again or name.endswith("utils/checkpoint.py")
            if own is None and frame["name"] not in _WRAPPERS:
                called = called or frame["name"]
        elif own is None and not name.startswith("<") and f"{os.sep}memx{os.sep}" not in name:
            own = (name, frame["line"], frame["name"])
    if own is None:
        return "", 0, "", called, again
    return (*own, called, again)
