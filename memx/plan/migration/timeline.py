"""Schedules as traces for Perfetto and Chrome: operations, copies and what each segment holds, one below the other."""

from __future__ import annotations

import heapq
import json
from os import PathLike, fspath
from typing import Any

from ...errors import PlanError
from ...trace.files import written_whole
from .moves import Move
from .result import SegmentPlan

__all__ = ["timeline_of", "write_timeline"]

# One operation is a microsecond: the traces do not say how long they take.
_US = 1
_OPERATIONS, _COPIES, _MEMORY = 1, 2, 3


def write_timeline(path: str | PathLike[str], plan: SegmentPlan, title: str) -> None:
    """Write a plan's schedule in the Trace Event Format, which https://ui.perfetto.dev opens.

    Raises
    ------
    PlanError
        There is no plan, or the file cannot be written.
    """
    if not plan.feasible:
        raise PlanError(f"{fspath(path)}: there is no plan to write: {plan.reason}")
    try:
        with written_whole(path) as part:
            part.write_text(json.dumps(timeline_of(plan, title)), encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{fspath(path)}: {error.strerror}") from None


def timeline_of(plan: SegmentPlan, title: str) -> dict[str, Any]:
    """The timeline as the object that is written.

    A copy to the device lasts from where it may begin to the operation that needs it, one to the host an operation.
    """
    problem, moves = plan.problem, plan.moves(linger=False)
    events: list[dict[str, Any]] = []
    for process, name in ((_OPERATIONS, title), (_COPIES, "copies"), (_MEMORY, f"device memory, {plan.mode}")):
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
    for t, step in enumerate(problem.steps):
        args = {"bytes": int(problem.step_bytes[t])} | ({"line": step.line} if step.line else {})
        events.append(_slice(_OPERATIONS, 0, step.name or f"operation {t}", t, t + 1, args))
    uses: dict[int, list[int]] = {}
    for o, t in zip(problem.object.tolist(), problem.step.tolist(), strict=True):
        uses.setdefault(o, []).append(t)
    copies: list[tuple[int, int, str, Move]] = []
    for move in moves:
        if move.kind == "in":
            copies.append((move.step, next(t for t in uses[move.object] if t >= move.step), "to the device", move))
        elif move.kind == "out":
            copies.append((move.step, move.step + 1, "to the host", move))
    events += _lanes(plan, copies)
    events += _occupancy(plan, moves)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slice(process: int, lane: int, name: str, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": process,
        "tid": lane,
        "name": name,
        "ts": begin * _US,
        "dur": max(end - begin, 0) * _US,
        "args": args,
    }


def _lanes(plan: SegmentPlan, copies: list[tuple[int, int, str, Move]]) -> list[dict[str, Any]]:
    """Copies that overlap in lanes of their own, those of each way together."""
    events: list[dict[str, Any]] = []
    free: dict[str, list[tuple[int, int]]] = {"to the device": [], "to the host": []}
    counts = dict.fromkeys(free, 0)
    first = {"to the device": 0, "to the host": 1000}
    for begin, end, way, move in sorted(copies, key=lambda row: row[:2]):
        if free[way] and free[way][0][0] <= begin:
            _, lane = heapq.heappop(free[way])
        else:
            lane = first[way] + counts[way]
            counts[way] += 1
            events.append(_lane_name(_COPIES, lane, way))
        heapq.heappush(free[way], (max(end, begin + 1), lane))
        name = str(plan.problem.ids[move.object])
        args = {"bytes": int(plan.problem.size[move.object])}
        events.append(_slice(_COPIES, lane, name, begin, max(end, begin + 1), args))
    return events


def _lane_name(process: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": lane, "args": {"name": name}}


def _occupancy(plan: SegmentPlan, moves: list[Move]) -> list[dict[str, Any]]:
    """What each segment holds: a lane where it is one object at a time, else the bytes of it over time."""
    problem = plan.problem
    events: list[dict[str, Any]] = []
    if plan.mode == "exclusive":
        for segment, nbytes in enumerate(plan.segments):
            events.append(_lane_name(_MEMORY, segment, f"segment {segment}, {nbytes} bytes"))
    held: dict[str, int] = {}
    since: dict[int, int] = {}
    for move in moves:
        o, size = move.object, int(problem.size[move.object])
        comes = move.kind in ("in", "make")
        home = int(plan.homes[o])
        for name in ("device",) if home < 0 or plan.mode == "exclusive" else ("device", f"segment {home}"):
            held[name] = held.get(name, 0) + (size if comes else -size)
            events.append(
                {"ph": "C", "pid": _MEMORY, "name": name, "ts": move.step * _US, "args": {"bytes": held[name]}}
            )
        if plan.mode == "exclusive":
            if comes:
                since[o] = move.step
            else:
                args = {"bytes": size, "leaves": move.kind}
                events.append(_slice(_MEMORY, home, str(problem.ids[o]), since[o], move.step, args))
    return events
