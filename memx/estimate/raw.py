"""What an estimated process writes down, as it goes from there to the process that estimates."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ALLOC", "FREE", "Frame", "Operation", "Raw"]

ALLOC, FREE = 0, 1
#: Functions of PyTorch that say nothing of what is done.
_WRAPPERS = {
    "_call_impl",
    "_wrapped_call_impl",
    "decorate_context",
    "wrapper",
    "__torch_function__",
    "inner",
    "_fn",
    "__call__",
}

#: File, line and function of the program's own; the function of PyTorch that it called; whether a checkpoint's forward
#: pass was being run again.
Frame = tuple[str, int, str, str, bool]
#: Number, name, addresses that are read and that are written, stream, thread.
Operation = tuple[int, str, list[int], list[int], int, int]


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
    operations : list of Operation
        In order, where they were asked for; several with one number are one operation's parts.
    places : list of int
        The event before which each is over.
    inside : list of (operation, event, event)
        What was allocated and freed while an operation ran: its number, and the events.
    makers : list of int
        Of each event, the operation during which it happened; 0: none.
    step_operations : list of int
        The last operation of each step.
    unseen : str
        Why the operations are not all that there were.
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
    operations: list[Operation] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    inside: list[tuple[int, int, int]] = field(default_factory=list)
    makers: list[int] = field(default_factory=list)
    step_operations: list[int] = field(default_factory=list)
    unseen: str = ""

    def take(self, entries: list[dict[str, Any]], torch: Path) -> None:
        """Add what PyTorch recorded; ``torch`` is its folder."""
        known: dict[Frame, int] = {}
        placing = _Placing(self)
        for entry in entries:
            action = entry["action"]
            if action == "alloc":
                operation = placing.alloc(entry)
                frame = _frame(entry.get("frames", ()), str(torch) + os.sep, operation)
                number = known.setdefault(frame, len(known))
                self.events.append((ALLOC, entry["addr"], entry["size"], entry["stream"], number))
            elif action == "free_requested":
                placing.free(entry)
                self.events.append((FREE, entry["addr"], entry["size"], entry["stream"], -1))
        placing.finish()
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
        raw.operations = [(o[0], o[1], o[2], o[3], o[4], o[5]) for o in raw.operations]
        raw.inside = [(i[0], i[1], i[2]) for i in raw.inside]
        raw.names = {int(address): name for address, name in raw.names.items()}
        return raw


class _Placing:
    """Finds out from the marks of :class:`naming.Numbering` where operations belong among the events."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._names = {number: name for number, name, *_ in raw.operations}
        self._over = self._begun = 0
        self._inside: dict[int, tuple[int, int]] = {}

    def alloc(self, entry: dict[str, Any]) -> str:
        """Take an allocation; returns the name of the operation that made it, if one is known."""
        number = self._advance(entry)
        self._raw.makers.append(max(0, number))
        if number <= 0:
            return "" if number else entry.get("user_metadata") or ""
        self._inside[entry["addr"]] = number, len(self._raw.events)
        return self._names.get(number, "")

    def free(self, entry: dict[str, Any]) -> None:
        """Take a free."""
        number = self._advance(entry)
        self._raw.makers.append(max(0, number))
        operation, born = self._inside.pop(entry["addr"], (0, 0))
        if operation and operation == number:
            self._raw.inside.append((number, born, len(self._raw.events)))

    def finish(self) -> None:
        """The rest is over after all events."""
        self._place(len(self._raw.operations) and self._raw.operations[-1][0])

    def _advance(self, entry: dict[str, Any]) -> int:
        try:
            number = int(entry.get("user_metadata") or 0)
        except ValueError:
            return 0
        # Each thread has a mark of its own, which may be an old one: then what was seen to run is over too.
        self._place(number - 1 if number > 0 else max(-number, self._begun))
        self._begun = max(self._begun, number)
        return number

    def _place(self, over: int) -> None:
        raw = self._raw
        self._over = max(self._over, over)
        while len(raw.places) < len(raw.operations) and raw.operations[len(raw.places)][0] <= self._over:
            raw.places.append(len(raw.events))


def _frame(frames: Any, torch: str, operation: str) -> Frame:
    """The innermost frame that is the program's own, or of a library above PyTorch."""
    called = ""
    again = False
    own: tuple[str, int, str] | None = None
    for frame in frames:
        name = frame["filename"]
        if name.startswith(torch) or "torchinductor_" in name:
            again = again or name.endswith("utils/checkpoint.py")
            if own is None and frame["name"] not in _WRAPPERS:
                called = called or frame["name"]
        elif f"{os.sep}memx{os.sep}" in name:
            called = ""  # what is inside of it is how operations are watched
        elif own is None and not name.startswith("<"):
            own = (name, frame["line"], frame["name"])
    if own is None:
        return "", 0, "", operation or called, again
    return (*own, called or operation, again)
