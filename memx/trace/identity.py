"""Which buffers and streams a trace may name at a point, so that a broken trace is found where it breaks."""

from __future__ import annotations

from .events import Alloc, CheckContents, Event, Free, Id, Kernel, RecordStream, Stream
from .parse import MalformedError

__all__ = ["Identities"]


class Identities:
    """Live ids, and declared streams; memory grows with what is live, not with the trace."""

    def __init__(self) -> None:
        self._live: dict[Id, int] = {}
        # Their allocation may have failed: they may be named, freed and defined again.
        self._doubtful: set[Id] = set()
        self._streams: dict[int, int] = {}

    def admit(self, event: Event) -> None:
        """Take one more event.

        Raises
        ------
        MalformedError
            It defines what is defined, or names what is not and does not expect an error.
        """
        kind = type(event)
        if kind is Kernel:
            assert isinstance(event, Kernel)
            if event.expect == "ok":
                for operand in event.reads:
                    self._require(operand.id)
                for operand in event.writes:
                    self._require(operand.id)
        elif kind is Alloc:
            assert isinstance(event, Alloc)
            self._define(event)
        elif kind is Free:
            assert isinstance(event, Free)
            if event.expect == "ok":
                self._require(event.id)
            self._live.pop(event.id, None)
        elif kind is RecordStream or kind is CheckContents:
            assert isinstance(event, (RecordStream, CheckContents))
            self._require(event.id)
        elif kind is Stream:
            assert isinstance(event, Stream)
            declared = self._streams.setdefault(event.stream, event.line)
            if declared != event.line:
                raise MalformedError(f"stream {event.stream} is declared already, on line {declared}")

    def _define(self, event: Alloc) -> None:
        if event.id in self._live:
            raise MalformedError(f"id {event.id!r} is still allocated, on line {self._live[event.id]}")
        if event.expect == "ok":
            self._live[event.id] = event.line
            self._doubtful.discard(event.id)
        else:
            self._doubtful.add(event.id)

    def _require(self, name: Id) -> None:
        if name not in self._live and name not in self._doubtful:
            raise MalformedError(f"id {name!r} is not allocated here")
