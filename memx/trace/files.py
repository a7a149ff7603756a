"""Opening trace files: plain, ``.gz`` and ``.zst``."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from ..errors import TraceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["READ_ERRORS", "open_reader", "open_text", "open_writer", "written_whole"]

#: What reading a damaged file may raise, beside TraceError.
READ_ERRORS = (OSError, EOFError, zlib.error)


def _zstandard(path: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise TraceError(f"{path}: .zst needs the package zstandard (pip install zstandard)") from None
    return zstandard


class _ZstdReader(io.RawIOBase):
    """Decompressed bytes of all frames of a file; a file that ends inside a frame raises EOFError.

    zstandard's own stream reader ends quietly there.
    """

    def __init__(self, path: str) -> None:
        zstandard = _zstandard(path)
        self._file = open(path, "rb")  # noqa: SIM115
        self._decompressor = zstandard.ZstdDecompressor()
        self._error = zstandard.ZstdError
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._output and self._advance():
            pass
        count = min(len(view), len(self._output))
        view[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def _advance(self) -> bool:
        if not self._input:
            self._input = self._file.read(1 << 16)
        if not self._input:
            if self._frame is not None:
                raise EOFError("compressed file ended before the end-of-stream marker was reached")
            return False
        if self._frame is None:
            self._frame = self._decompressor.decompressobj()
        try:
            self._output = memoryview(self._frame.decompress(self._input))
        except self._error as error:
            raise OSError(str(error)) from None
        self._input = b""
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = None
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_reader(path: str | PathLike[str]) -> BinaryIO:
    """A buffered binary file of the decompressed contents.

    Raises
    ------
    TraceError
        There is no such file, it cannot be opened, or its compression needs a package that is not installed.
    """
    name = fspath(path)
    try:
        if name.endswith(".gz"):
            # GzipFile is a BufferedIOBase: it has all of the raw interface that BufferedReader uses.
            return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.open(name, "rb")), 1 << 16))
        if name.endswith(".zst"):
            return cast(BinaryIO, io.BufferedReader(_ZstdReader(name), 1 << 16))
        return open(name, "rb")
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror or error}") from None


def open_text(path: str | PathLike[str]) -> TextIO:
    """The decompressed text of a table, line ends as they are; see :func:`open_reader`."""
    return io.TextIOWrapper(open_reader(path), encoding="utf-8-sig", newline="")


@contextmanager
def written_whole(path: str | PathLike[str]) -> Iterator[Path]:
    """Another name to write to; the file gets its own when the block ends, and never exists in part.

    Raises
    ------
    OSError
    """
    target = Path(path)
    part = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def open_writer(path: str | PathLike[str]) -> BinaryIO:
    """A binary file that compresses by the name's suffix; gzip output does not depend on the time of day."""
    name = fspath(path)
    if name.endswith(".gz"):
        return cast(BinaryIO, _DatelessGzip(name))
    if name.endswith(".zst"):
        compressor = _zstandard(name).ZstdCompressor()
        return cast(BinaryIO, compressor.stream_writer(open(name, "wb"), closefd=True))
    return open(name, "wb")


class _DatelessGzip(gzip.GzipFile):
    def __init__(self, path: str) -> None:
        self._raw = open(path, "wb")  # noqa: SIM115
        super().__init__(filename="", mode="wb", fileobj=self._raw, mtime=0)

    def close(self) -> None:
        super().close()
        self._raw.close()
