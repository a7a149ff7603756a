"""What a file is, by its content, and what it says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike, fspath
from pathlib import PurePath

from ..errors import PlanError, TraceError
from ..trace import Trace
from ..trace.files import READ_ERRORS, open_reader
from ..trace.rmm import RMM_HEADER, read_rmm
from .buffers import Buffers
from .lifetimes import TRACE_ALIGNMENT, buffers_of, trace_buffers
from .order import AllocationOrder, allocation_order
from .snapshots import read_snapshot
from .tables import read_csv

__all__ = ["KINDS", "Source", "file_sha256", "identify", "read_buffers"]

KINDS = ("csv", "rmm", "snapshot", "trace")

# A pickled dict begins with the first in protocols from 2 on, with the others in 0 and 1; no text of a table does.
_PICKLED = (b"\x80", b"(", b"}")
_PICKLE_SUFFIXES = (".pickle", ".pkl")


@dataclass(frozen=True)
class Source:
    """Where a problem comes from.

    Attributes
    ----------
    path : str
    sha256 : str
        Of the file's bytes.
    kind : str
        One of :data:`KINDS`.
    page : int or None
        Bytes of a page, where the file says.
    order : AllocationOrder or None
        How the program allocates, where the file is a trace.
    """

    path: str
    sha256: str
    kind: str
    page: int | None = None
    order: AllocationOrder | None = None


def identify(path: str | PathLike[str]) -> str:
    """Which of :data:`KINDS` a file is; a table that is not known for anything else is ``"csv"``.

    Raises
    ------
    PlanError
        It cannot be read.
    """
    name = fspath(path)
    try:
        with open_reader(name) as file:
            head = file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip()
    except TraceError as error:
        raise PlanError(str(error)) from None
    except READ_ERRORS as error:
        raise PlanError(f"{name}: the file cannot be read: {error}") from None
    if head.startswith(_PICKLED) or _plain_suffix(name) in _PICKLE_SUFFIXES:
        return "snapshot"
    if head.startswith(b"{"):
        return "trace"
    columns = head.split(b"\n")[0].decode("latin-1").lower().split(",")
    return "rmm" if tuple(column.strip() for column in columns) == RMM_HEADER else "csv"


def _plain_suffix(name: str) -> str:
    """The suffix below that of the compression."""
    path = PurePath(name)
    return (path.with_suffix("") if path.suffix in (".gz", ".zst") else path).suffix


def read_buffers(
    path: str | PathLike[str],
    alignment: int | None = None,
    device: int | None = None,
    scale: Fraction | None = None,
) -> tuple[Buffers, Source]:
    """Read a layout problem from minimalloc's CSV, a memx trace, a PyTorch memory snapshot or an RMM log.

    Parameters
    ----------
    path : path
        May be compressed, ``.gz`` or ``.zst``.
    alignment : int, optional
        Bytes to which every offset is aligned at least; None: what the file says for CSV, 512 for others.
    device : int, optional
        Which device of a snapshot; needed where several have a history.
    scale : Fraction, optional
        Multiplies the sizes of a trace, as a scaled replay does.

    Raises
    ------
    PlanError, TraceError
        With file, line and what is wrong.
    """
    name = fspath(path)
    if alignment is not None and alignment < 1:
        raise PlanError(f"an alignment of {alignment} bytes is below 1")
    kind = identify(name)
    if scale is not None and kind != "trace":
        raise PlanError(f"{name}: only a trace can be scaled")
    sha256 = file_sha256(name)
    if kind == "csv":
        buffers = read_csv(name)
        return (buffers if alignment is None else buffers.aligned(alignment)), Source(name, sha256, kind)
    alignment = TRACE_ALIGNMENT if alignment is None else alignment
    if kind == "trace":
        trace = Trace(name, scale=scale)
        return trace_buffers(trace, alignment), Source(name, sha256, kind, trace.page, allocation_order(trace))
    if kind == "rmm":
        return buffers_of(read_rmm(name), alignment, lambda line: f"{name}:{line}"), Source(name, sha256, kind)
    return read_snapshot(name, device, alignment), Source(name, sha256, kind)


def file_sha256(name: str) -> str:
    """Of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with open(name, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror}") from None
    return digest.hexdigest()
