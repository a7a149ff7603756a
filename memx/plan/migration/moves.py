"""Moves of objects between host and device, and the account of them: what they cost and whether they hold.

This shares no code with what computes plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import PlanError
from .problem import READS, WRITES, Migration

__all__ = ["KINDS", "Move", "Moved", "check_moves"]

KINDS = ("out", "drop", "in", "make")


@dataclass(frozen=True, slots=True)
class Move:
    """One object's coming or going, before a step.

    Attributes
    ----------
    step : int
        Before which step; the number of steps: after the last.
    object : int
    kind : str
        ``"in"``: room, and its contents are copied to the device. ``"make"``: room, for the step produces it.
        ``"out"``: its contents are copied to the host, and its room is free. ``"drop"``: its room is free.
    """

    step: int
    object: int
    kind: str


@dataclass(frozen=True)
class Moved:
    """What moves cost in bytes, and the most that was on the device at once."""

    in_bytes: int
    out_bytes: int
    peak_bytes: int

    @property
    def bytes(self) -> int:
        """In both directions."""
        return self.in_bytes + self.out_bytes


def check_moves(
    problem: Migration,
    moves: Iterable[Move],
    capacity: int,
    segments: Sequence[int] | None = None,
    homes: Sequence[int] | None = None,
    *,
    exclusive: bool = False,
) -> Moved:
    """Replay moves one by one.

    Parameters
    ----------
    problem : Migration
    moves : iterable of Move
        In order; those before one step in the order given.
    capacity : int
        Bytes that the device has.
    segments : sequence of int, optional
        Bytes of each part that the capacity is cut into; ``homes`` says for each object which part it lies in.
    exclusive : bool
        Whether no two objects are ever in one segment at once.

    Raises
    ------
    PlanError
        Something does not fit, is not there or not what was last written, or is lost at the end.
    """
    if segments is not None and sum(segments) > capacity:
        raise PlanError(f"segments of {sum(segments)} bytes do not fit the capacity of {capacity}")
    state = _State(problem, capacity, segments, homes, exclusive)
    accesses: list[list[tuple[int, int]]] = [[] for _ in problem.steps]
    for o, t, mode in zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), strict=True):
        if problem.size[o]:
            accesses[t].append((o, mode))
    now = 0
    for move in moves:
        if not now <= move.step <= len(accesses):
            raise PlanError(f"a move before step {move.step} comes after one before step {now}")
        while now < move.step:
            state.step(now, accesses[now])
            now += 1
        state.move(move)
    while now < len(accesses):
        state.step(now, accesses[now])
        now += 1
    return state.end()


class _State:
    def __init__(
        self,
        problem: Migration,
        capacity: int,
        segments: Sequence[int] | None,
        homes: Sequence[int] | None,
        exclusive: bool,
    ) -> None:
        self._problem = problem
        self._size = problem.size.tolist()
        self._capacity = capacity
        self._room = list(segments) if segments is not None else []
        self._homes = homes if segments is not None else None
        self._exclusive = exclusive
        self._occupants = [0] * len(self._room)
        self._here: set[int] = set()
        self._stale: set[int] = set()  # the host's copy is not the last
        self._whole: set[int] = set()  # the device's is
        self._used = self._peak = self._in = self._out = 0

    def move(self, move: Move) -> None:
        o, size = move.object, self._size[move.object]
        where = f"the move {move.kind!r} of object {self._problem.ids[o]!r} before step {move.step}"
        if move.kind in ("in", "make"):
            if o in self._here:
                raise PlanError(f"{where}: it is there already")
            if move.kind == "in":
                if o in self._stale:
                    raise PlanError(f"{where}: the host has not what was last written")
                self._whole.add(o)
                self._in += size
            self._here.add(o)
            self._take(o, size, where)
        elif move.kind in ("out", "drop"):
            if o not in self._here:
                raise PlanError(f"{where}: it is not there")
            if move.kind == "out":
                if o not in self._whole:
                    raise PlanError(f"{where}: the device has no contents of it")
                self._stale.discard(o)
                self._out += size
            self._here.discard(o)
            self._whole.discard(o)
            self._take(o, -size, where)
        else:
            raise PlanError(f"{where}: there is no such kind of move")

    def _take(self, o: int, size: int, where: str) -> None:
        self._used += size
        self._peak = max(self._peak, self._used)
        if self._used > self._capacity:
            raise PlanError(f"{where}: {self._used} bytes are more than the capacity of {self._capacity}")
        if self._homes is None:
            return
        home = self._homes[o]
        self._room[home] -= size
        self._occupants[home] += 1 if size > 0 else -1
        if self._room[home] < 0:
            raise PlanError(f"{where}: segment {home} does not hold that much")
        if self._exclusive and self._occupants[home] > 1:
            raise PlanError(f"{where}: segment {home} has another object")

    def step(self, number: int, accesses: list[tuple[int, int]]) -> None:
        for o, mode in accesses:
            name = self._problem.ids[o]
            if o not in self._here:
                raise PlanError(f"step {number} needs object {name!r}, which is not on the device")
            if mode & READS and o not in self._whole:
                raise PlanError(f"step {number} reads object {name!r}, whose contents are not on the device")
        for o, mode in accesses:
            if mode & WRITES:
                self._whole.add(o)
                self._stale.add(o)

    def end(self) -> Moved:
        for o in sorted(self._stale):
            if self._problem.keep[o]:
                raise PlanError(
                    f"object {self._problem.ids[o]!r} is kept, and its contents are not on the host at the end"
                )
        return Moved(self._in, self._out, self._peak)
