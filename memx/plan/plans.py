"""Plan files: a checked layout, what it was made from and how."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib import metadata
from os import PathLike, fspath
from typing import Any, TextIO

import numpy as np

from ..errors import PlanError
from ..trace.files import written_whole
from .buffers import Buffers, Column
from .check import check_layout
from .inputs import Source
from .layouts import Layout
from .order import AllocationOrder
from .tables import write_csv

__all__ = ["FORMAT", "SavedLayout", "memx_version", "plan_kind", "read_document", "read_layout", "write_layout"]

FORMAT = 1


@dataclass(frozen=True)
class SavedLayout:
    """A layout read back from a plan file, and checked again.

    Attributes
    ----------
    buffers : Buffers
    offsets : int64 array
    height : int
    capacity : int or None
    source_sha256 : str
        Of the file that the plan was made from.
    order : AllocationOrder or None
        How the program allocates, where that file was a trace.
    """

    buffers: Buffers
    offsets: Column
    height: int
    capacity: int | None
    source_sha256: str
    order: AllocationOrder | None = None


def write_layout(path: str | PathLike[str], buffers: Buffers, layout: Layout, source: Source) -> None:
    """Write a plan, as JSON or, where the name ends in ``.csv``, as a CSV with offsets.

    Nothing is written unless the layout passes :func:`check_layout` once more, with its capacity; a file
    appears whole or not at all.

    Raises
    ------
    PlanError
        The layout does not hold, or the file cannot be written.
    """
    check_layout(buffers, layout.offsets, layout.capacity)
    try:
        with written_whole(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
            if part.suffix == ".csv":
                write_csv(file, buffers, layout.offsets)
            else:
                _write_json(file, buffers, layout, source)
    except OSError as error:
        raise PlanError(f"{fspath(path)}: {error.strerror}") from None


def read_layout(path: str | PathLike[str]) -> SavedLayout:
    """Read a JSON plan and check that it holds.

    Raises
    ------
    PlanError
        It is not a layout plan, or what it says is not so.
    """
    name = fspath(path)
    document = read_document(path, "layout", "a layout plan")
    try:
        table = document["buffers"]
        columns = [table[key] for key in ("id", "lower", "upper", "size")]
        buffers = Buffers(*columns, alignment=table["alignment"])
        offsets = np.array(table["offset"], np.int64)
        height, capacity = document["height"], document["capacity"]
        sha256 = document["source"]["sha256"]
        order = _order(document.get("order"), len(buffers))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"{name}: a damaged plan: {type(error).__name__}: {error}") from None
    try:
        check_layout(buffers, offsets, capacity)
    except PlanError as error:
        raise PlanError(f"{name}: the plan does not hold: {error}") from None
    use = buffers.occupying
    if height != int((offsets + buffers.size)[use].max(initial=0)):
        raise PlanError(f"{name}: the height of {height} is not that of its buffers")
    return SavedLayout(buffers, offsets, height, capacity, sha256, order)


def read_document(path: str | PathLike[str], kind: str, what: str) -> dict[str, Any]:
    """A JSON plan of one kind, which `what` names in messages; what else is in it is not looked at.

    Raises
    ------
    PlanError
        It cannot be read, or is something else.
    """
    name = fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"{name}: not JSON: {error}") from None
    says: dict[str, Any] = document if isinstance(document, dict) else {}
    if says.get("memx_plan") != FORMAT or says.get("kind") != kind:
        raise PlanError(f'{name}: not {what}: it must say "memx_plan": {FORMAT}, "kind": "{kind}"')
    return says


def plan_kind(path: str | PathLike[str]) -> str | None:
    """What a JSON plan says that it is, ``"layout"`` or ``"schedule"``; None for anything else."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return None
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else None


def _write_json(file: TextIO, buffers: Buffers, layout: Layout, source: Source) -> None:
    document: dict[str, Any] = {
        "memx_plan": FORMAT,
        "kind": "layout",
        "memx": memx_version(),
        "source": {"name": os.path.basename(source.path), "kind": source.kind, "sha256": source.sha256},
        "capacity": layout.capacity,
        "height": layout.height,
        "lower_bound": layout.lower_bound,
        "optimal": layout.optimal,
        "fits": layout.fits,
        "method": layout.method,
        "seed": layout.seed,
        "buffers": {
            "id": list(buffers.ids),
            "lower": buffers.lower.tolist(),
            "upper": buffers.upper.tolist(),
            "size": buffers.size.tolist(),
            "alignment": buffers.alignment.tolist(),
            "offset": layout.offsets.tolist(),
        },
    }
    if source.order is not None:
        document["order"] = {"streams": source.order.streams, "steps": source.order.steps}
    json.dump(document, file)
    file.write("\n")


def _order(says: Any, count: int) -> AllocationOrder | None:
    if says is None:
        return None
    order = AllocationOrder(tuple(map(int, says["streams"])), tuple(map(int, says["steps"])))
    if len(order.streams) != count or any(not 0 <= step < count for step in order.steps):
        raise ValueError("its order of allocations is not that of its buffers")
    return order


def memx_version() -> str:
    """The version that plan files name."""
    try:
        return metadata.version("memx")
    except metadata.PackageNotFoundError:
        import memx

        return str(getattr(memx, "__version__", "unknown"))
