"""The offline planner: needs no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .births import Births, plan_births
from .buffers import Buffer, Buffers
from .check import check_layout, find_overlap
from .chunks import makespan, plan_chunks
from .inputs import Source, read_buffers
from .layouts import Layout, layout
from .lifetimes import trace_buffers
from .migration import Migration, SegmentPlan, read_migration, segments
from .plans import SavedLayout, read_layout, write_layout
from .snapshots import read_snapshot
from .tables import read_csv, write_csv

if TYPE_CHECKING:
    from .playback import Playback, use

__all__ = [
    "Births",
    "Buffer",
    "Buffers",
    "Layout",
    "Migration",
    "Playback",
    "SavedLayout",
    "SegmentPlan",
    "Source",
    "check_layout",
    "find_overlap",
    "layout",
    "makespan",
    "plan_births",
    "plan_chunks",
    "read_buffers",
    "read_csv",
    "read_layout",
    "read_migration",
    "read_snapshot",
    "segments",
    "trace_buffers",
    "use",
    "write_csv",
    "write_layout",
]


def __getattr__(name: str) -> Any:
    # Only play-back needs the allocator and cuda.core.
    if name in ("Playback", "use"):
        from . import playback

        return getattr(playback, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
