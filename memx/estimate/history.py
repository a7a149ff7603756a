"""What memory was for, and when: one pass over a process's allocations and what it was doing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .raw import ALLOC, Frame, Raw

__all__ = ["CATEGORIES", "Allocation", "History", "round_up"]

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "temporaries", "workspaces", "other")
_GRANULE = 512
_OWNED = {"parameters": "parameters", "gradients": "gradients", "state": "optimizer state"}
_RANK = {"parameters": 0, "optimizer state": 1, "gradients": 2}
_NO_FRAME: Frame = ("", 0, "", "", False)


def round_up(nbytes: int) -> int:
    """What PyTorch's allocator and memx take for a request."""
    return -(-nbytes // _GRANULE) * _GRANULE


@dataclass(slots=True)
class Allocation:
    """Bytes that lived from one event to another.

    Attributes
    ----------
    bytes, stream : int
        As asked.
    born, died : int
        Numbers of events; ``died`` is the number of events where it lived to the end.
    frame : Frame
    category : str
        One of :data:`CATEGORIES`.
    name : str
        Of the parameter that it is, or belongs to; empty where it is none.
    """

    bytes: int
    stream: int
    address: int
    born: int
    died: int
    frame: Frame
    category: str = ""
    name: str = ""


@dataclass
class History:
    """A process's allocations with their categories.

    Attributes
    ----------
    allocations : list of Allocation
        In order.
    steps : list of int
        The event before which each step of the optimizer ended.
    peak_bytes : int
        The most that lived at once, in what an allocator takes for it.
    peak_event : int
        The event that reached it.
    events : int
    """

    allocations: list[Allocation] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    peak_bytes: int = 0
    peak_event: int = -1
    events: int = 0

    @classmethod
    def of(cls, raw: Raw) -> History:
        """Put every allocation into a category.

        What an optimizer holds, when it steps, are parameters, gradients and its state. What was made outside of
        backward passes and steps and lives when a backward pass begins are activations, as is what a checkpoint makes
        again; if it still lives in the next step's backward pass, it is something else. What is freed when cuBLAS is
        told to let go of its workspaces are those. The rest are temporaries.
        """
        return _Pass(raw).run()

    def at(self, event: int) -> list[Allocation]:
        """What lived after an event."""
        return [one for one in self.allocations if one.born <= event < one.died]

    def by_category(self, event: int) -> dict[str, int]:
        """Bytes after an event."""
        out = dict.fromkeys(CATEGORIES, 0)
        for one in self.at(event):
            out[one.category] += round_up(one.bytes)
        return out

    def last_step(self) -> tuple[int, int]:
        """First and last event of the last whole step, or of everything where there are not two."""
        if len(self.steps) < 2:
            return 0, self.steps[0] if self.steps else self.events
        return self.steps[-2], self.steps[-1]

    def curve(self, points: int = 400) -> list[dict[str, Any]]:
        """Bytes by category over the last step: of each stretch of events, the moment with the most."""
        begin, end = self.last_step()
        now = self.by_category(begin - 1) if begin else dict.fromkeys(CATEGORIES, 0)
        changes: dict[int, list[tuple[str, int]]] = {}
        for one in self.allocations:
            if begin <= one.born < end:
                changes.setdefault(one.born, []).append((one.category, round_up(one.bytes)))
            if begin <= one.died < end:
                changes.setdefault(one.died, []).append((one.category, -round_up(one.bytes)))
        stride = max(1, -(-(end - begin) // points))
        out: list[dict[str, Any]] = []
        for start in range(begin, end, stride):
            best: dict[str, Any] | None = None
            for event in range(start, min(start + stride, end)):
                for category, nbytes in changes.get(event, ()):
                    now[category] += nbytes
                total = sum(now.values())
                if best is None or total > best["total"]:
                    best = {"event": event - begin, "total": total, "bytes": list(now.values())}
            assert best is not None
            out.append(best)
        return out


class _Pass:
    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._out = History(events=len(raw.events))
        self._live: dict[int, Allocation] = {}
        self._phase = "forward"
        self._clearing = False
        self._step_ended = -1

    def run(self) -> History:
        out = self._out
        raw = self._raw
        marks = self._placed()
        upcoming = next(marks, None)
        now = 0
        for number, (kind, address, nbytes, stream, frame) in enumerate(raw.events):
            while upcoming is not None and upcoming[0] <= number:
                self._mark(number, upcoming[1], upcoming[2])
                upcoming = next(marks, None)
            if kind == ALLOC:
                one = Allocation(nbytes, stream, address, number, len(raw.events), self._frame(frame))
                one.category = self._first_guess(one)
                self._live[address] = one
                out.allocations.append(one)
                now += round_up(nbytes)
                if now > out.peak_bytes:
                    out.peak_bytes, out.peak_event = now, number
            elif address in self._live:
                one = self._live.pop(address)
                one.died = number
                now -= round_up(one.bytes)
                if self._clearing:
                    one.category = "workspaces"
                elif one.category == "made forward":
                    one.category = "temporaries"
        while upcoming is not None:
            self._mark(len(raw.events), upcoming[1], upcoming[2])
            upcoming = next(marks, None)
        for one in self._live.values():
            if one.category == "made forward":
                one.category = "other"
        return out

    def _frame(self, number: int) -> Frame:
        return self._raw.frames[number] if 0 <= number < len(self._raw.frames) else _NO_FRAME

    def _placed(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """The marks with the event before which each belongs."""
        allocations, frees = self._raw.missing, 0
        frees_seen = sum(event[0] != ALLOC for event in self._raw.events)
        if self._raw.marks:
            frees = max(0, self._raw.marks[-1][1] - frees_seen)
        number = 0
        for allocated, freed, kind, what in self._raw.marks:
            while number < len(self._raw.events) and (allocations < allocated or frees < freed):
                if self._raw.events[number][0] == ALLOC:
                    allocations += 1
                else:
                    frees += 1
                number += 1
            yield number, kind, what

    def _first_guess(self, one: Allocation) -> str:
        if self._phase == "forward":
            return "made forward"
        if self._phase == "backward" and one.frame[4]:
            return "activations"
        return "temporaries"

    def _mark(self, number: int, kind: str, what: dict[str, Any]) -> None:
        if kind == "backward_begins":
            self._phase = "backward"
            for one in self._live.values():
                if one.category == "made forward":
                    one.category = "activations"
                elif one.category == "activations" and one.born < self._step_ended:
                    one.category = "other"
        elif kind == "backward_ends":
            self._phase = "forward"
        elif kind in ("step_begins", "step_ends"):
            self._phase = "step" if kind == "step_begins" else "forward"
            self._claim(what)
            if kind == "step_ends":
                self._step_ended = number
                if what.get("main", True):
                    self._out.steps.append(number)
        elif kind in ("clearing", "cleared"):
            self._clearing = kind == "clearing"
            self._name_buffers()

    def _claim(self, what: dict[str, Any]) -> None:
        names = self._raw.names
        owned = what.get("parameters", [])
        gradients = what.get("gradients", [])
        for key, category in _OWNED.items():
            for address in what.get(key, ()):
                one = self._live.get(address)
                if one is not None and _RANK.get(one.category, 9) >= _RANK[category]:
                    one.category = category
                    if category == "parameters":
                        one.name = names.get(address, "")
        if len(owned) == len(gradients):
            for parameter, gradient in zip(owned, gradients, strict=True):
                one = self._live.get(gradient)
                if one is not None and one.category == "gradients":
                    one.name = names.get(parameter, "")

    def _name_buffers(self) -> None:
        """Parameters that no optimizer has, and modules' buffers."""
        for address, name in self._raw.names.items():
            one = self._live.get(address)
            if one is not None and one.category in ("made forward", "activations", "other"):
                one.category, one.name = "parameters", name
