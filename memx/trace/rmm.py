"""RMM's logs (``logging_resource_adaptor``) as the events of a trace."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath

from ..errors import TraceError
from . import events as ev
from .files import READ_ERRORS, open_text
from .streams import PER_THREAD, StreamNumbers

__all__ = ["RMM_HEADER", "read_rmm"]

RMM_HEADER = ("thread", "time", "action", "pointer", "size", "stream")

_ACTIONS = {"allocate": "allocate", "allocate failure": "failure", "free": "free", "deallocate": "free"}
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")
_NULL = ("(nil)", "nullptr")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.:](\d{1,9}))?")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


@dataclass(slots=True, frozen=True)
class _Row:
    line: int
    thread: str
    time: float
    action: str
    pointer: int
    size: int
    stream: int

    @property
    def id(self) -> str:
        return f"failed-{self.line}" if self.action == "failure" else f"{self.pointer:#x}"


def read_rmm(path: str | PathLike[str]) -> list[ev.Event]:
    """The events of an RMM log, with the lines that they stand on.

    Pointers become ids and streams small numbers; the first thread is thread 0. A failed allocation is one that
    is expected to end out of memory. What asked for no bytes and got no address is left out.

    Rows count in the order of the file, which is the order in which the log was written: what one thread frees
    and another gets at the same address follows one upon the other there. Where that contradicts itself, as
    where the logs of threads were joined, and the order of the times does not, that is taken.

    Parameters
    ----------
    path : path
        ``Thread,Time,Action,Pointer,Size,Stream``; may be compressed, ``.gz`` or ``.zst``.

    Raises
    ------
    TraceError
        With file, line and what is wrong: a row that is malformed, an address given out twice, or freed and
        not held, or freed with another size.
    """
    name = fspath(path)
    rows = list(_rows(name))
    problem = _contradiction(rows)
    if problem is not None:
        by_time = sorted(rows, key=lambda row: row.time)
        if _contradiction(by_time) is not None:
            line, text = problem
            raise TraceError(f"{name}:{line}: {text}", line)
        rows = by_time
    return list(_events(rows))


def _rows(name: str) -> Iterator[_Row]:
    line = 1
    try:
        with open_text(name) as file:
            reader = csv.reader(file)
            header = tuple(cell.strip().lower() for cell in next(reader, ()))
            if header != RMM_HEADER:
                raise TraceError(
                    f"{name}:1: not an RMM log, whose first line is Thread,Time,Action,Pointer,Size,Stream", 1
                )
            for cells in reader:
                line = reader.line_num
                if any(cell.strip() for cell in cells):
                    yield _row(name, line, [cell.strip() for cell in cells])
    except UnicodeDecodeError as error:
        raise TraceError(f"{name}: not a text file: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise TraceError(f"{name}:{line + 1}: {error}", line + 1) from None
    except READ_ERRORS as error:
        raise TraceError(f"{name}:{line + 1}: the file is damaged: {error}", line + 1) from None


def _row(name: str, line: int, cells: list[str]) -> _Row:
    def fail(problem: str) -> TraceError:
        who = f"pointer {cells[3]!r}: " if len(cells) > 3 else ""
        return TraceError(f"{name}:{line}: {who}{problem}", line)

    def number(column: str, text: str) -> int:
        if text in _NULL:
            return 0
        match = _HEX.fullmatch(text)
        if match is None:
            raise fail(f"{column} {text!r} is not an address")
        return int(match[1], 16)

    if len(cells) != len(RMM_HEADER):
        raise fail(f"{len(cells)} cells under {len(RMM_HEADER)} columns")
    thread, time, action, pointer, size, stream = cells
    if action not in _ACTIONS:
        raise fail(f"action {action!r} is none of {', '.join(_ACTIONS)}")
    if not (size.isascii() and size.isdigit()):
        raise fail(f"size {size!r} is not a number of bytes")
    seconds = _seconds(time)
    if seconds is None:
        raise fail(f"time {time!r} is not a time of day or a number of seconds")
    row = _Row(line, thread, seconds, _ACTIONS[action], number("pointer", pointer), int(size), number("stream", stream))
    if row.pointer == 0 and row.size > 0 and row.action != "failure":
        raise fail(f"{action} of {size} bytes at no address")
    return row


def _seconds(text: str) -> float | None:
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, seconds, fraction = clock.groups()
        return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction or 0}")
    return float(text) if _SECONDS.fullmatch(text) else None


def _contradiction(rows: list[_Row]) -> tuple[int, str] | None:
    """The line of the first row that cannot follow those before it, and why."""
    held: dict[int, _Row] = {}
    for row in rows:
        if row.pointer == 0:
            continue
        if row.action == "allocate":
            first = held.setdefault(row.pointer, row)
            if first is not row:
                return row.line, f"pointer {row.id!r} is allocated, and is since line {first.line}"
        elif row.action == "free":
            first_held = held.pop(row.pointer, None)
            if first_held is None:
                return row.line, f"pointer {row.id!r} is freed and not allocated"
            if first_held.size != row.size:
                return row.line, (
                    f"pointer {row.id!r} is freed with {row.size} bytes, "
                    f"and was allocated with {first_held.size} on line {first_held.line}"
                )
    return None


def _events(rows: list[_Row]) -> Iterator[ev.Event]:
    streams = StreamNumbers()
    threads: dict[str, int] = {}
    current = 0
    for row in rows:
        if row.pointer == 0 and row.action != "failure":
            continue
        thread = threads.setdefault(row.thread, len(threads))
        if thread != current:
            current = thread
            yield ev.Thread(thread, line=row.line)
        stream, is_new = streams.take(row.stream)
        if is_new and row.stream == PER_THREAD:
            yield ev.Stream(stream, "per_thread", line=row.line)
        if row.action == "free":
            yield ev.Free(row.id, stream, line=row.line)
            continue
        failed = row.action == "failure"
        yield ev.Alloc(row.id, row.size, stream, expect="oom" if failed else "ok", line=row.line)
        if failed:
            # Where it does not fail this time it goes at once.
            yield ev.Free(row.id, stream, line=row.line)
