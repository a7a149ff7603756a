"""Writing traces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, fields
from os import PathLike
from types import TracebackType
from typing import Any

from . import events as ev
from .files import open_writer
from .reader import Header, Trace

__all__ = ["Writer", "event_line", "header_line", "write"]


def _operand(operand: ev.Operand) -> ev.Id | dict[str, Any]:
    if operand.offset == 0 and operand.bytes is None:
        return operand.id
    entry: dict[str, Any] = {"id": operand.id, "offset": operand.offset}
    if operand.bytes is not None:
        entry["bytes"] = operand.bytes
    return entry


def _as_fields(event: ev.Event) -> dict[str, Any]:
    out: dict[str, Any] = {"op": event.op}
    for item in fields(event):
        value = getattr(event, item.name)
        if item.name in ("line", "action") or (item.default is not MISSING and value == item.default):
            continue
        out[item.name] = [_operand(one) for one in value] if item.name in ("reads", "writes") else value
    if isinstance(event, ev.Fail) and len(out.keys() & {"at", "every", "probability"}) == 0:
        out["probability"] = 0
    return out


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode("utf-8") + b"\n"


def header_line(header: Header) -> bytes:
    """The first line of a file. Sizes are in bytes."""
    first: dict[str, Any] = {"memx_trace": 1, "page": header.page, "name": header.name}
    for key in ("device_limit", "host_limit", "reuse", "lazy"):
        if getattr(header, key) is not None:
            first[key] = getattr(header, key)
    return _line(first)


def event_line(event: ev.Event) -> bytes:
    """An event's line."""
    return _line(_as_fields(event))


class Writer:
    """A trace file being written, a context manager.

    Parameters
    ----------
    path : path
        Compressed by its suffix, ``.gz`` or ``.zst``.
    header : Header
        Sizes are written in bytes.
    """

    def __init__(self, path: str | PathLike[str], header: Header) -> None:
        self._file = open_writer(path)
        self._file.write(header_line(header))

    def write(self, event: ev.Event) -> None:
        """Add one event."""
        self._file.write(event_line(event))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write(path: str | PathLike[str], header: Header, events: Iterable[ev.Event] | Trace) -> None:
    """Write a whole trace."""
    with Writer(path, header) as writer:
        for event in events:
            writer.write(event)
