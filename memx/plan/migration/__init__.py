"""Objects on a device that is too small for all of them at once: what is there when, and what moves."""

from __future__ import annotations

from .moves import Move, Moved, check_moves
from .problem import Migration, read_migration
from .result import SegmentPlan
from .solve import segments

__all__ = ["Migration", "Move", "Moved", "SegmentPlan", "check_moves", "read_migration", "segments"]
