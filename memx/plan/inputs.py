"""What a file to plan is, by its first bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from os import PathLike, fspath

from ..errors import PlanError
from ..trace import read
from .buffers import Buffers
from .lifetimes import TRACE_ALIGNMENT, trace_buffers
from .snapshots import read_snapshot
from .tables import read_csv

__all__ = ["Source", "read_buffers"]

_PICKLED = b"\x80"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True)
class Source:
    """Where a problem comes from.

    Attributes
    ----------
    path : str
    sha256 : str
        Of the file's bytes.
    kind : str
        ``"csv"``, ``"trace"`` or ``"snapshot"``.
    page : int or None
        Bytes of a page, where the file says.
    """

    path: str
    sha256: str
    kind: str
    page: int | None = None


def read_buffers(
    path: str | PathLike[str], alignment: int | None = None, device: int | None = None
) -> tuple[Buffers, Source]:
    """Read a layout problem from minimalloc's CSV, a memx trace or a PyTorch memory snapshot.

    Parameters
    ----------
    path : path
    alignment : int, optional
        Bytes to which every offset is aligned at least; None: what the file says for CSV, 512 for others.
    device : int, optional
        Which device of a snapshot; needed where several have a history.

    Raises
    ------
    PlanError, TraceError
        With file, line and what is wrong.
    """
    name = fspath(path)
    if alignment is not None and alignment < 1:
        raise PlanError(f"an alignment of {alignment} bytes is below 1")
    digest = hashlib.sha256()
    try:
        with open(name, "rb") as file:
            head = file.read(64)
            file.seek(0)
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror}") from None
    sha256 = digest.hexdigest()
    if head.startswith(_COMPRESSED) or head.lstrip().startswith(b"{"):
        trace = read(name)
        buffers = trace_buffers(trace, TRACE_ALIGNMENT if alignment is None else alignment)
        return buffers, Source(name, sha256, "trace", trace.page)
    if head.startswith(_PICKLED):
        buffers = read_snapshot(name, device, TRACE_ALIGNMENT if alignment is None else alignment)
        return buffers, Source(name, sha256, "snapshot")
    buffers = read_csv(name)
    return (buffers if alignment is None else buffers.aligned(alignment)), Source(name, sha256, "csv")
