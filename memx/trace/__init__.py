"""Trace files: what a program asked of an allocator, and on which streams it used what it got."""

from __future__ import annotations

from .reader import Header, Summary, Trace, read
from .recorder import Recorder
from .writer import Writer, write

__all__ = ["Header", "Recorder", "Summary", "Trace", "Writer", "read", "write"]
