"""Layout problems and layouts as CSV, in minimalloc's format."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TextIO

from ..errors import PlanError, TraceError
from ..trace.files import READ_ERRORS, open_text
from .buffers import Buffers, Column

__all__ = ["read_csv", "unique_names", "write_csv"]

_ALIASES = {"buffer": "id", "begin": "lower", "start": "lower", "end": "upper"}
_REQUIRED = ("id", "lower", "upper", "size")
_OPTIONAL = {"alignment": "1", "offset": "-1"}


def read_csv(path: str | PathLike[str]) -> Buffers:
    """Read ``id,lower,upper,size`` and optionally ``alignment`` and ``offset``.

    ``buffer`` stands for ``id``, ``begin`` or ``start`` for ``lower``, and ``end``, the last moment at which
    the buffer is alive, for ``upper - 1``. Blank alignments are 1; a blank offset leaves the buffer free.

    Raises
    ------
    PlanError
        With file, line and what is wrong: a column that is missing, given twice or not understood (``gaps``
        too), a number that is none, an id used twice, and what :class:`Buffers` refuses.
    """
    name = fspath(path)
    try:
        with open_text(name) as file:
            return _parse(name, file)
    except TraceError as error:
        raise PlanError(str(error)) from None
    except READ_ERRORS as error:
        raise PlanError(f"{name}: the file cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise PlanError(f"{name}: not a text file: {error.reason} at byte {error.start}") from None


def write_csv(file: TextIO, buffers: Buffers, offsets: Column | None = None) -> None:
    """Write the problem, with a layout in the ``offset`` column if there is one.

    In a trace an id may be used again; here the second is called ``id#2``, and so on.
    """
    columns = {"lower": buffers.lower, "upper": buffers.upper, "size": buffers.size}
    if (buffers.alignment != 1).any():
        columns["alignment"] = buffers.alignment
    cells: list[list[str] | list[int]] = [column.tolist() for column in columns.values()]
    header = ["id", *columns]
    if offsets is not None:
        header.append("offset")
        cells.append(offsets.tolist())
    elif (buffers.fixed >= 0).any():
        header.append("offset")
        cells.append(["" if offset < 0 else str(offset) for offset in buffers.fixed.tolist()])
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(unique_names(buffers.ids), *cells, strict=True))


def unique_names(ids: Sequence[str | int]) -> list[str]:
    """Ids as text that occurs once: what is there before gets a number."""
    names = [str(one) for one in ids]
    taken = set(names)
    if len(taken) == len(names):
        return names
    times: dict[str, int] = {}
    for i, name in enumerate(names):
        times[name] = count = times.get(name, 0) + 1
        while count > 1 and (numbered := f"{name}#{count}") in taken:
            count += 1
        if count > 1:
            taken.add(numbered)
            times[name], names[i] = count, numbered
    return names


def _parse(name: str, file: TextIO) -> Buffers:
    reader = csv.reader(file)
    lines: list[int] = []

    def fail(line: int, problem: str) -> PlanError:
        return PlanError(f"{name}:{line}: {problem}")

    try:
        header = next(reader, None)
        if header is None:
            raise fail(1, f"the file is empty; its first line names columns: {','.join(_REQUIRED)}")
        columns = _columns([cell.strip() for cell in header], lambda problem: fail(1, problem))
        rows = []
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise fail(reader.line_num, f"{len(row)} cells under {len(header)} columns")
            lines.append(reader.line_num)
            rows.append(row)
    except csv.Error as error:
        raise fail(reader.line_num, str(error)) from None

    cells = [[row[i].strip() for row in rows] for i in range(len(header))]
    ids = cells[columns["id"]]
    seen: dict[str, int] = {}
    for line, buffer in zip(lines, ids, strict=True):
        if seen.setdefault(buffer, line) != line:
            raise fail(line, f"buffer {buffer!r} is on line {seen[buffer]} already")

    def numbers(field: str) -> list[int]:
        if field not in columns:
            return [int(_OPTIONAL[field])] * len(rows)
        blank = _OPTIONAL.get(field)
        values = []
        for i, text in enumerate(cells[columns[field]]):
            try:
                values.append(int(text if text or blank is None else blank))
            except ValueError:
                raise fail(lines[i], f"buffer {ids[i]!r}: {field} {text!r} is not a whole number") from None
            if field == "offset" and text and values[-1] < 0:
                raise fail(lines[i], f"buffer {ids[i]!r}: offset {text} is negative")
        return values

    lower, upper = numbers("lower"), numbers("upper")
    if header[columns["upper"]].strip() == "end":
        for i, last in enumerate(upper):
            if last < lower[i]:
                raise fail(lines[i], f"buffer {ids[i]!r}: it ends at {last}, before it begins at {lower[i]}")
        upper = [last + 1 for last in upper]
    return Buffers(
        ids,
        lower,
        upper,
        numbers("size"),
        alignment=numbers("alignment"),
        fixed=numbers("offset"),
        place=lambda i: f"{name}:{lines[i]}",
    )


def _columns(header: list[str], fail: Callable[[str], PlanError]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for position, given in enumerate(header):
        field = _ALIASES.get(given, given)
        if field not in _REQUIRED and field not in _OPTIONAL:
            why = "gaps in lifetimes are not supported" if given == "gaps" else "it is not understood"
            raise fail(f"column {given!r}: {why} (known: {', '.join((*_REQUIRED, *_OPTIONAL))})")
        if field in columns:
            raise fail(f"columns {header[columns[field]]!r} and {given!r} both give {field}")
        columns[field] = position
    for field in _REQUIRED:
        if field not in columns:
            raise fail(f"there is no column {field!r}")
    return columns
