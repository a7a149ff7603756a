"""The offline planner: needs no GPU."""

from __future__ import annotations

from .buffers import Buffer, Buffers
from .check import check_layout, find_overlap
from .inputs import Source, read_buffers
from .layouts import Layout, layout
from .lifetimes import trace_buffers
from .snapshots import read_snapshot
from .tables import read_csv, write_csv

__all__ = [
    "Buffer",
    "Buffers",
    "Layout",
    "Source",
    "check_layout",
    "find_overlap",
    "layout",
    "read_buffers",
    "read_csv",
    "read_snapshot",
    "trace_buffers",
    "write_csv",
]
