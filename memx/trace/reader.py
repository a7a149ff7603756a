"""Reading traces, a line at a time."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any

from ..errors import TraceError
from . import events as ev
from .files import READ_ERRORS, open_reader
from .identity import Identities
from .parse import MalformedError, boolean, member, parse_event, size, text
from .scale import scale_event, scale_size

__all__ = ["Header", "Summary", "Trace", "read"]

REUSE_MODES = ("stream", "default", "mutual")
DEFAULT_PAGE = 2 << 20
# No line that a writer makes comes near; a file without line ends must not be read into memory whole.
_LONGEST_LINE = 16 << 20


@dataclass(slots=True, frozen=True)
class Header:
    """The first line. Limits in bytes; None where the trace does not say."""

    name: str
    page: int = DEFAULT_PAGE
    device_limit: int | None = None
    host_limit: int | None = None
    reuse: str | None = None
    lazy: bool | None = None


@dataclass(slots=True, frozen=True)
class Summary:
    """What one pass over a trace says.

    Attributes
    ----------
    events : int
    buffers : int
        Allocations that are expected to succeed.
    peak_live_bytes : int
        The most that was allocated at once: no allocator that does not move data can hold less.
    largest_operation_bytes : int
        The most that one kernel names, each byte counted once.
    uses_faults : bool
        Whether it injects faults, which only the simulated device can.
    """

    events: int
    buffers: int
    peak_live_bytes: int
    largest_operation_bytes: int
    uses_faults: bool


class Trace:
    """A trace file. Iterating reads it anew, in bounded memory, and yields the events in order.

    Parameters
    ----------
    path : path
        ``.jsonl``, or that with ``.gz`` or ``.zst``.
    page : int, optional
        Bytes of a page, instead of the header's; sizes written in pages follow it.
    scale : Fraction, optional
        Multiplies every size; see :meth:`scaled`.

    Raises
    ------
    TraceError
        Here for a file that cannot be opened or whose header is wrong, while iterating for the rest; the
        message is one line with the file, the line and what is wrong.
    """

    def __init__(self, path: str | PathLike[str], page: int | None = None, scale: Fraction | None = None) -> None:
        self.path = fspath(path)
        self._page = page
        self._scale = scale
        lines = self._lines(first_only=True)
        first = next(lines, None)
        lines.close()
        if first is None:
            raise self._error(1, 'the file is empty; a trace begins with {"memx_trace": 1, ...}')
        self.header = self._read_header(first[1])
        self._summary: Summary | None = None

    @property
    def name(self) -> str:
        """What the header calls the trace; else the file's name."""
        return self.header.name

    @property
    def page(self) -> int:
        """Bytes of a page."""
        return self.header.page

    @property
    def device_limit(self) -> int | None:
        """The header's limit in bytes, if it has one."""
        return self.header.device_limit

    @property
    def host_limit(self) -> int | None:
        """The header's limit in bytes, if it has one."""
        return self.header.host_limit

    def scaled(self, factor: Fraction | str | int | float) -> Trace:
        """The same trace with every size multiplied by ``factor`` and rounded up to 512 bytes.

        Zero stays zero, and sizes that no device could have (negative, or 2**63 and more) stay as they are:
        they are there to be refused. Parts of buffers keep their places, so that parts that do not overlap
        still do not. Limits in the header are scaled up to whole pages, byte values in checks like sizes.
        """
        by = Fraction(factor)
        if by <= 0:
            raise ValueError(f"a scale must be positive, not {factor}")
        return Trace(self.path, self._page, by * (self._scale or 1))

    def __iter__(self) -> Iterator[ev.Event]:
        page = self.header.page
        scale = self._scale
        identities = Identities()
        for line, fields in self._lines():
            try:
                event = parse_event(fields, page, line)
                identities.admit(event)
            except MalformedError as error:
                raise self._error(line, str(error)) from None
            yield event if scale is None else scale_event(event, scale)

    def summary(self) -> Summary:
        """Counts and peaks, from one pass that also finds every malformed line."""
        if self._summary is None:
            self._summary = _summarise(self)
        return self._summary

    def peak_live_bytes(self) -> int:
        """The most bytes that were allocated at once."""
        return self.summary().peak_live_bytes

    def _lines(self, first_only: bool = False) -> Generator[tuple[int, Any], None, None]:
        """Decoded lines with their numbers: the header alone, or all after it."""
        number = 0
        header_seen = False
        with open_reader(self.path) as file:
            while True:
                number += 1
                try:
                    raw = file.readline(_LONGEST_LINE)
                except READ_ERRORS as error:
                    raise self._error(number, f"the file is damaged: {error}") from None
                if not raw:
                    return
                if len(raw) == _LONGEST_LINE:
                    raise self._error(number, f"the line is longer than {_LONGEST_LINE} bytes")
                if raw.isspace():
                    continue
                if header_seen or first_only:
                    yield number, self._decode(number, raw)
                header_seen = True

    def _decode(self, number: int, raw: bytes) -> Any:
        try:
            return json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self._error(number, f"not UTF-8 at byte {error.start} of the line") from None
        except json.JSONDecodeError as error:
            raise self._error(number, f"not JSON: {error.msg} at column {error.colno}") from None
        except (RecursionError, ValueError) as error:
            raise self._error(number, f"not JSON that can be read: {str(error).splitlines()[0]}") from None

    def _error(self, line: int, message: str) -> TraceError:
        return TraceError(f"{self.path}:{line}: {message}", line)

    def _read_header(self, fields: Any) -> Header:
        if not isinstance(fields, dict) or "memx_trace" not in fields:
            raise self._error(1, 'not a memx trace: the first line must be {"memx_trace": 1, ...}')
        version = fields["memx_trace"]
        if version != 1 or isinstance(version, bool):
            raise self._error(1, f"trace version {version!r} is not known; this memx reads version 1")
        try:
            return self._checked_header(fields)
        except MalformedError as error:
            raise self._error(1, str(error)) from None

    def _checked_header(self, fields: dict[str, Any]) -> Header:
        page = self._page or size(fields.get("page", DEFAULT_PAGE), "page", None, least=1)
        if page & (page - 1):
            raise MalformedError(f"'page' must be a power of two, not {page}")

        def limit(key: str) -> int | None:
            value = fields.get(key)
            if value is None:
                return None
            nbytes = size(value, key, page, least=0)
            if self._scale is None:
                return nbytes
            # A limit below one page would be none.
            return -(-scale_size(nbytes, self._scale) // page) * page

        reuse, lazy = fields.get("reuse"), fields.get("lazy")
        return Header(
            name=text(fields.get("name", PurePath(self.path).name.split(".")[0]), "name"),
            page=page,
            device_limit=limit("device_limit"),
            host_limit=limit("host_limit"),
            reuse=None if reuse is None else member(reuse, "reuse", REUSE_MODES),
            lazy=None if lazy is None else boolean(lazy, "lazy"),
        )


def read(path: str | PathLike[str], page: int | None = None) -> Trace:
    """Open a trace; see :class:`Trace`."""
    return Trace(path, page)


def _summarise(trace: Trace) -> Summary:
    events = buffers = live = peak = largest = 0
    uses_faults = False
    sizes: dict[ev.Id, int] = {}
    for event in trace:
        events += 1
        if isinstance(event, ev.Alloc):
            if event.expect in ("ok", "any"):
                buffers += 1
                sizes[event.id] = held = max(event.size, 0)
                live += held
                peak = max(peak, live)
        elif isinstance(event, ev.Free):
            live -= sizes.pop(event.id, 0)
        elif isinstance(event, ev.Kernel):
            largest = max(largest, _operation_bytes(event, sizes))
        elif isinstance(event, ev.Fail):
            uses_faults = True
    return Summary(events, buffers, peak, largest, uses_faults)


def _operation_bytes(kernel: ev.Kernel, sizes: dict[ev.Id, int]) -> int:
    spans: dict[ev.Id, list[tuple[int, int]]] = {}
    for operand in kernel.reads + kernel.writes:
        whole = sizes.get(operand.id, 0)
        end = whole if operand.bytes is None else min(whole, operand.offset + operand.bytes)
        spans.setdefault(operand.id, []).append((operand.offset, end))
    total = 0
    for ranges in spans.values():
        reached = 0
        for start, end in sorted(ranges):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
    return total
