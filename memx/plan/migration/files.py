"""Schedule files: what to bring in and push out before which operation, what it was made from and how."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np

from ...errors import PlanError
from ...trace.files import written_whole
from ..inputs import Source
from ..plans import FORMAT, memx_version, read_document
from .moves import Move, Moved, check_moves
from .problem import Migration, Step
from .result import SegmentPlan

__all__ = ["SavedSchedule", "read_schedule", "write_schedule"]

_LISTS = {"prefetch": "in", "write_back": "out", "drop": "drop"}


@dataclass(frozen=True)
class SavedSchedule:
    """A schedule read back from a plan file, and checked again.

    Attributes
    ----------
    problem : Migration
        The trace's, with sizes as they were planned.
    moves : sequence of Move
    moved : Moved
        What they cost.
    capacity : int
    rounding : int
        Bytes that sizes were rounded up to multiples of; 1: not.
    source_sha256 : str
        Of the trace that the schedule was made from.
    """

    problem: Migration
    moves: Sequence[Move]
    moved: Moved
    capacity: int
    rounding: int
    source_sha256: str


def write_schedule(path: str | PathLike[str], plan: SegmentPlan, source: Source, rounding: int = 1) -> None:
    """Write a plan's schedule as JSON; a file appears whole or not at all.

    Raises
    ------
    PlanError
        There is no plan, it does not hold, or the file cannot be written.
    """
    if not plan.feasible:
        raise PlanError(f"{fspath(path)}: there is no plan to write: {plan.reason}")
    moves = plan.moves()
    plan.check(moves)
    problem = plan.problem
    document: dict[str, Any] = {
        "memx_plan": FORMAT,
        "kind": "schedule",
        "memx": memx_version(),
        "source": {"name": os.path.basename(source.path), "kind": source.kind, "sha256": source.sha256},
        "mode": plan.mode,
        "capacity": plan.capacity,
        "rounding": rounding,
        "segments": list(plan.segments),
        "migrated_bytes": plan.migrated_bytes,
        "lower_bound": plan.lower_bound,
        "optimal": plan.optimal,
        "method": plan.method,
        "seed": plan.seed,
        "operations": len(problem.steps),
        "objects": {
            "id": list(problem.ids),
            "size": problem.size.tolist(),
            "keep": problem.keep.tolist(),
            "segment": plan.homes.tolist(),
        },
        "accesses": {
            "object": problem.object.tolist(),
            "operation": problem.step.tolist(),
            "mode": problem.mode.tolist(),
        },
    }
    for name, kind in _LISTS.items():
        document[name] = _by_operation(move for move in moves if move.kind == kind)
    try:
        with written_whole(path) as part, open(part, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.write("\n")
    except OSError as error:
        raise PlanError(f"{fspath(path)}: {error.strerror}") from None


def _by_operation(moves: Iterable[Move]) -> list[tuple[int, list[int]]]:
    lists: dict[int, list[int]] = defaultdict(list)
    for move in moves:
        lists[move.step].append(move.object)
    return sorted(lists.items())


def read_schedule(path: str | PathLike[str]) -> SavedSchedule:
    """Read a schedule and check that it holds and moves what it says.

    Raises
    ------
    PlanError
        It is not a schedule, or what it says is not so.
    """
    name = fspath(path)
    document = read_document(path, "schedule", "a schedule")
    try:
        problem = _problem(document)
        moves = _moves(document, problem)
        capacity, rounding, claimed = (int(document[key]) for key in ("capacity", "rounding", "migrated_bytes"))
        segments, homes = [int(size) for size in document["segments"]], document["objects"]["segment"]
        sha256 = str(document["source"]["sha256"])
        exclusive = document["mode"] == "exclusive"
        if any(not 0 <= int(home) < len(segments) for home in homes if segments and home != -1):
            raise ValueError("an object in no segment")
        parts = (segments, homes) if segments else (None, None)
        moved = check_moves(problem, moves, capacity, *parts, exclusive=exclusive)
    except PlanError as error:
        raise PlanError(f"{name}: the schedule does not hold: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise PlanError(f"{name}: a damaged schedule: {type(error).__name__}: {error}") from None
    if moved.bytes != claimed:
        raise PlanError(f"{name}: the schedule moves {moved.bytes} bytes, not the {claimed} that it says")
    return SavedSchedule(problem, moves, moved, capacity, rounding, sha256)


def _problem(document: dict[str, Any]) -> Migration:
    objects, accesses = document["objects"], document["accesses"]
    columns = [np.array(accesses[key], np.int64) for key in ("object", "operation", "mode")]
    size = np.array(objects["size"], np.int64)
    keep = np.array(objects["keep"], bool)
    count = int(document["operations"])
    if not len(objects["id"]) == len(size) == len(keep) or len({len(column) for column in columns}) != 1:
        raise ValueError("columns of different lengths")
    if len(columns[0]) and not (columns[0].min() >= 0 and columns[0].max() < len(size)):
        raise ValueError("an access to no object")
    if len(columns[1]) and not (
        columns[1].min() >= 0 and columns[1].max() < count and (np.diff(columns[1]) >= 0).all()
    ):
        raise ValueError("accesses out of order")
    return Migration(objects["id"], size, keep, [Step()] * count, *columns)


def _moves(document: dict[str, Any], problem: Migration) -> list[Move]:
    """The listed moves, and room for what a step produces."""
    rows: list[tuple[int, int, Move]] = []
    for name, kind in _LISTS.items():
        for step, objects in document[name]:
            for o in objects:
                if not 0 <= o < len(problem.size):
                    raise ValueError("a move of no object")
                rows.append((int(step), int(kind == "in"), Move(int(step), int(o), kind)))
    rows.sort(key=lambda row: row[:2])
    moves: list[Move] = []
    here: set[int] = set()
    done = 0

    def until(step: int, order: int) -> None:
        nonlocal done
        while done < len(rows) and rows[done][:2] <= (step, order):
            move = rows[done][2]
            (here.add if move.kind == "in" else here.discard)(move.object)
            moves.append(move)
            done += 1

    for o, t in zip(problem.object.tolist(), problem.step.tolist(), strict=True):
        until(t, 1)
        if o not in here and problem.size[o]:
            here.add(o)
            moves.append(Move(t, o, "make"))
    until(len(problem.steps), 1)
    return moves
