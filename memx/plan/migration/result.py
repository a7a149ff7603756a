"""What planning over segments finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..buffers import Column
from .moves import Move, Moved, check_moves
from .problem import Flags, Migration
from .schedule import AHEAD, moves_of

__all__ = ["MODES", "SegmentPlan"]

MODES = ("exclusive", "packed", "unsegmented")


@dataclass(frozen=True)
class SegmentPlan:
    """Which objects share which segment, and when each is on the device.

    Attributes
    ----------
    problem : Migration
    mode : str
        One of :data:`MODES`.
    capacity : int
    segments : sequence of int
        Bytes of each segment, descending; none in mode ``"unsegmented"``.
    homes : int64 array
        The segment of each object, -1 for those that are never accessed or have no bytes.
    dropped : bool array
        For each access, whether the object left the device since its access before.
    feasible : bool
        Such a plan was found. If not, ``reason`` says why and names the step.
    infeasible_step : int or None
        The step that no plan can meet, after all those before it.
    reason : str
    migrated_bytes : int or None
        Host to device and back; None where not feasible.
    lower_bound : int or None
        No plan moves fewer bytes, with segments or without; None where a step needs more than the capacity.
    optimal : bool
        It is proven that no plan of this mode, with these segments, moves fewer bytes.
    method : str
    seed : int
    seconds : float
    """

    problem: Migration
    mode: str
    capacity: int
    segments: Sequence[int]
    homes: Column = field(repr=False)
    dropped: Flags = field(repr=False)
    feasible: bool
    infeasible_step: int | None
    reason: str
    migrated_bytes: int | None
    lower_bound: int | None
    optimal: bool
    method: str
    seed: int
    seconds: float

    def objects_in(self, segment: int) -> list[int]:
        """Numbers of the objects that a segment serves."""
        return [int(o) for o in np.flatnonzero(self.homes == segment)]

    def moves(self, ahead: int = AHEAD, *, linger: bool = True) -> list[Move]:
        """What comes and goes before which step, as :func:`moves_of` says; empty where not feasible."""
        if not self.feasible:
            return []
        return moves_of(
            self.problem,
            self.dropped,
            self.capacity,
            *self._parts,
            exclusive=self._exclusive,
            ahead=ahead,
            linger=linger,
        )

    def check(self, moves: Sequence[Move] | None = None) -> Moved:
        """Replay the moves, by default the plan's own, and count their bytes; see :func:`check_moves`."""
        return check_moves(
            self.problem,
            self.moves() if moves is None else moves,
            self.capacity,
            *self._parts,
            exclusive=self._exclusive,
        )

    @property
    def _parts(self) -> tuple[Sequence[int] | None, list[int] | None]:
        return (None, None) if self.mode == "unsegmented" else (self.segments, self.homes.tolist())

    @property
    def _exclusive(self) -> bool:
        return self.mode == "exclusive"
