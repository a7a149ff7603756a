"""From decisions to moves: what comes and goes before which operation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..buffers import Column
from .moves import Move
from .problem import READS, WRITES, Flags, Migration

__all__ = ["AHEAD", "moves_of"]

AHEAD = 8
"""Operations that a copy may start before the one that needs it, where there is room."""


def moves_of(
    problem: Migration,
    dropped: Flags,
    capacity: int,
    segments: Sequence[int] | None = None,
    homes: Sequence[int] | None = None,
    *,
    exclusive: bool = False,
    ahead: int = AHEAD,
    linger: bool = True,
) -> list[Move]:
    """Moves that follow decisions, in order.

    Parameters
    ----------
    problem : Migration
    dropped : array of bool
        For each access, whether the object leaves the device before it, since its access before.
    capacity : int
    segments, homes, exclusive
        As for :func:`check_moves`.
    ahead : int
        An object comes up to so many operations before the one that reads it, as soon as there is room: the copy
        then has their time.
    linger : bool
        An object goes when something needs its room, so that nobody has to wait for its last use before that; else
        right after that use.
    """
    stays = sorted(_stays(problem, dropped), key=lambda stay: (stay.begin, stay.object))
    room = _Room(problem, stays, capacity, segments, homes, exclusive)
    for stay in stays:
        if stay.reads:
            stay.begin = room.back(stay, max(stay.earliest, stay.begin - ahead))
    if linger:
        latest: dict[int, int] = {}
        for stay in reversed(stays):
            stay.end = room.on(stay, latest.get(stay.object, len(problem.steps)))
            latest[stay.object] = stay.begin
    table: list[tuple[int, int, int, Move]] = []
    # What goes makes the room for what comes.
    for rank, stay in enumerate(stays):
        table.append((stay.begin, 1, rank, Move(stay.begin, stay.object, "in" if stay.reads else "make")))
        table.append((stay.end, 0, rank, Move(stay.end, stay.object, "out" if stay.written_back else "drop")))
    return [move for _, _, _, move in sorted(table, key=lambda row: row[:3])]


class _Stay:
    """One object on the device, from before step ``begin`` to before step ``end``."""

    __slots__ = ("begin", "earliest", "end", "object", "reads", "written_back")

    def __init__(self, number: int, begin: int, earliest: int, reads: bool) -> None:
        self.object = number
        self.begin = begin
        self.earliest = earliest
        self.end = begin + 1
        self.reads = reads
        self.written_back = False


def _stays(problem: Migration, dropped: Flags) -> list[_Stay]:
    stays: list[_Stay] = []
    open_stay: dict[int, _Stay] = {}
    dirty: dict[int, bool] = {}
    sizes = problem.size.tolist()
    rows = zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), dropped.tolist(), strict=True)
    for o, t, mode, gone in rows:
        if not sizes[o]:
            continue
        stay = open_stay.get(o)
        # Nothing stays for what is about to be produced whole, unless the two steps are neighbours.
        if stay is not None and (gone or not (mode & READS or stay.end == t)):
            if mode & READS:
                stay.written_back = dirty[o]
                dirty[o] = False
            stay = None
        if stay is None:
            before = open_stay[o].end + 1 if o in open_stay else 0
            stay = open_stay[o] = _Stay(o, t, before, bool(mode & READS))
            stays.append(stay)
            if mode & READS:
                dirty[o] = False
        stay.end = t + 1
        if mode & WRITES:
            dirty[o] = True
    for o, stay in open_stay.items():
        stay.written_back = bool(problem.keep[o]) and dirty.get(o, False)
    return stays


class _Room:
    """Bytes free over each step, on the device or in each segment."""

    def __init__(
        self,
        problem: Migration,
        stays: list[_Stay],
        capacity: int,
        segments: Sequence[int] | None,
        homes: Sequence[int] | None,
        exclusive: bool,
    ) -> None:
        parts = [capacity] if segments is None else list(segments)
        self._homes = [0] * len(problem.size) if segments is None or homes is None else list(homes)
        self._sizes = problem.size.tolist()
        if segments is not None and exclusive:
            # An object takes up all of its segment.
            self._sizes = [parts[home] if home >= 0 else 0 for home in self._homes]
        self._free = [np.full(len(problem.steps) + 1, part, np.int64) for part in parts]
        for stay in stays:
            self._free[self._homes[stay.object]][stay.begin : stay.end] -= self._sizes[stay.object]

    def back(self, stay: _Stay, earliest: int) -> int:
        """The first step from which on there is room for an object to stay until it does, and takes that."""
        free, size = self._of(stay)
        full = np.flatnonzero(free[earliest : stay.begin] < size)
        begin = earliest + int(full[-1]) + 1 if len(full) else earliest
        free[begin : stay.begin] -= size
        return begin

    def on(self, stay: _Stay, latest: int) -> int:
        """The first step over which there is no room for an object to stay on, and takes that before it."""
        free, size = self._of(stay)
        full = np.flatnonzero(free[stay.end : latest] < size)
        end = stay.end + int(full[0]) if len(full) else max(stay.end, latest)
        free[stay.end : end] -= size
        return end

    def _of(self, stay: _Stay) -> tuple[Column, int]:
        return self._free[self._homes[stay.object]], self._sizes[stay.object]
