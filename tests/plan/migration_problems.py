"""Migration problems for tests, and answers that share nothing with memx: every assignment, every decision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

DATA = Path(__file__).parent / "data" / "migration"

Steps = tuple[tuple[tuple[int, str], ...], ...]


@dataclass(frozen=True)
class Small:
    """Sizes, steps of (object, mode), kept objects and a capacity that holds every step."""

    sizes: tuple[int, ...]
    steps: Steps
    keep: frozenset[int]
    capacity: int


def shared() -> list[tuple[Path, dict[str, Any]]]:
    """The traces with what is known of them."""
    return [(path.with_suffix(".jsonl"), json.loads(path.read_text())) for path in sorted(DATA.glob("*.json"))]


@st.composite
def problems(draw: st.DrawFn, most: int = 7, steps: int = 8) -> Small:
    count = draw(st.integers(1, most))
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)))
    rows = []
    for _ in range(draw(st.integers(1, steps))):
        chosen = draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True))
        rows.append(tuple((o, draw(st.sampled_from(["r", "w", "rw"]))) for o in chosen))
    keep = frozenset(draw(st.lists(st.integers(0, count - 1), max_size=2)))
    least = max((sum(sizes[o] for o, _ in row) for row in rows), default=0)
    capacity = draw(st.integers(max(1, least), max(1, least, sum(sizes))))
    return Small(sizes, tuple(rows), keep, capacity)


HOST, LOST, CLEAN, DIRTY = range(4)


def least_bytes(problem: Small, objects: frozenset[int], capacity: int) -> int | None:
    """The fewest bytes that move for some of the objects in memory of their own; None if a step does not fit.

    Every object may leave before every step, written back or not; nothing is assumed about when that is worth it.
    """
    order = sorted(objects)
    place = {o: i for i, o in enumerate(order)}
    states = {(HOST,) * len(order): 0}
    for step in problem.steps:
        here = {place[o]: mode for o, mode in step if o in place}
        for i, o in enumerate(order):
            size, mode = problem.sizes[o], here.get(i)
            after: dict[tuple[int, ...], int] = {}
            for state, cost in states.items():
                for now, more in _choices(state[i], size, mode):
                    to = (*state[:i], now, *state[i + 1 :])
                    if cost + more < after.get(to, cost + more + 1):
                        after[to] = cost + more
            states = after
        states = {
            state: cost
            for state, cost in states.items()
            if sum(problem.sizes[o] for o, s in zip(order, state, strict=True) if s >= CLEAN) <= capacity
        }
    ends = []
    for state, cost in states.items():
        kept = [(o, s) for o, s in zip(order, state, strict=True) if o in problem.keep]
        if all(s != LOST for _, s in kept):
            ends.append(cost + sum(problem.sizes[o] for o, s in kept if s == DIRTY))
    return min(ends, default=None)


def _choices(state: int, size: int, mode: str | None) -> Iterator[tuple[int, int]]:
    """What an object may be over a step, and what that costs."""
    if mode is None:
        yield state, 0
        if state == CLEAN:
            yield HOST, 0
        elif state == DIRTY:
            yield HOST, size
            yield LOST, 0
        return
    if mode == "w":
        yield DIRTY, 0
        return
    into = CLEAN if mode == "r" else DIRTY
    if state == HOST:
        yield into, size
    elif state == CLEAN:
        yield into, 0
        yield into, size
    elif state == DIRTY:
        yield DIRTY, 0


def largest(problem: Small, count: int | None = None) -> tuple[int, ...]:
    """The sizes of the largest objects that are accessed, as many as fit."""
    used = sorted((problem.sizes[o] for o in {o for step in problem.steps for o, _ in step}), reverse=True)
    if count is not None:
        return tuple(used[:count])
    while sum(used) > problem.capacity:
        used.pop()
    return tuple(used)


def best_assignment(problem: Small, segments: tuple[int, ...], *, exclusive: bool) -> int | None:
    """The fewest bytes over every assignment of the accessed objects to segments; None if none serves all steps."""
    used = sorted({o for step in problem.steps for o, _ in step})

    @cache
    def price(objects: frozenset[int], size: int) -> int | None:
        return alone(problem, objects) if exclusive else least_bytes(problem, objects, size)

    best: int | None = None
    for homes in product(range(len(segments)), repeat=len(used)):
        if any(problem.sizes[o] > segments[s] for o, s in zip(used, homes, strict=True)):
            continue
        groups = [frozenset(o for o, home in zip(used, homes, strict=True) if home == s) for s in range(len(segments))]
        prices = [price(group, size) for group, size in zip(groups, segments, strict=True)]
        if all(p is not None for p in prices):
            total = sum(p for p in prices if p is not None)
            best = total if best is None else min(best, total)
    return best


def alone(problem: Small, objects: frozenset[int]) -> int | None:
    """As least_bytes, where no two objects are ever there at once."""
    moved = 0
    holder: int | None = None
    stale: set[int] = set()
    for t, step in enumerate(problem.steps):
        mine = [(o, mode) for o, mode in step if o in objects]
        if len(mine) > 1:
            return None
        for o, mode in mine:
            if holder is not None and holder != o and holder in stale and _needed(problem, holder, t):
                moved += problem.sizes[holder]
                stale.discard(holder)
            if holder != o and "r" in mode:
                moved += problem.sizes[o]
            holder = o
            if "w" in mode:
                stale.add(o)
    if holder in stale and holder in problem.keep:
        moved += problem.sizes[holder]
    return moved


def _needed(problem: Small, o: int, t: int) -> bool:
    """Whether an object's contents are needed from step ``t`` on."""
    for step in problem.steps[t:]:
        for other, mode in step:
            if other == o:
                return "r" in mode
    return o in problem.keep
