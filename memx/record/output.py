"""A trace file that is readable at every moment: of whole compressed pieces, each written at once."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import InvalidValueError
from ..trace import Header
from ..trace import events as ev
from ..trace.writer import event_line, header_line

__all__ = ["TraceFile", "numbered"]

_PIECE_BYTES = 4 << 20  # before compression


def _as_it_is(data: bytes) -> bytes:
    return data


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _zstandard(data: bytes) -> bytes:
    import zstandard

    return bytes(zstandard.ZstdCompressor().compress(data))


def _compression(path: Path) -> Callable[[bytes], bytes]:
    return {".gz": _gzip, ".zst": _zstandard}.get(path.suffix, _as_it_is)


def numbered(path: Path, number: int) -> Path:
    """``trace.jsonl.gz``, ``trace.2.jsonl.gz``, ..."""
    if number == 1:
        return path
    stem, dot, suffix = path.name.partition(".")
    return path.with_name(f"{stem}.{number}{dot}{suffix}")


class TraceFile:
    """A trace that is being recorded.

    Parameters
    ----------
    path : Path
        Compressed by its suffix, ``.gz`` or ``.zst``.
    header : Header

    Attributes
    ----------
    error : str
        Why nothing more is written; the file then ends with the last piece that is whole.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.error = ""
        self._compress = _compression(path)
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InvalidValueError(f"{path}: {error.strerror or error}") from None
        self._lines: list[bytes] = []
        self._bytes = 0
        self._whole = 0
        self._flushed_at = 0.0
        self._add(header_line(header))
        self.flush()

    def write(self, event: ev.Event) -> None:
        """Add one event, which is in the file after the next :meth:`flush`."""
        self._add(event_line(event))
        if self._bytes >= _PIECE_BYTES:
            self.flush()

    def is_due(self, seconds: float) -> bool:
        """Whether the last flush is so long ago."""
        return time.monotonic() - self._flushed_at >= seconds

    def flush(self) -> None:
        """Write a piece, wholly or not at all."""
        self._flushed_at = time.monotonic()
        lines, self._lines, self._bytes = self._lines, [], 0
        if not lines or self.error:
            return
        piece = memoryview(self._compress(b"".join(lines)))
        try:
            while piece:
                piece = piece[self._file.write(piece) :]
            self._whole = self._file.tell()
        except OSError as error:
            self.error = f"{self.path}: {error.strerror or error}"
            with suppress(OSError):
                self._file.truncate(self._whole)

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        self._file.close()

    def _add(self, line: bytes) -> None:
        if not self.error:
            self._lines.append(line)
            self._bytes += len(line)
