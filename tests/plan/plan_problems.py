"""Layout problems for tests and an exhaustive answer for small ones."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

from hypothesis import strategies as st

from memx.plan import Buffer

SHARED = Path(__file__).resolve().parents[3] / "shared"


def lowest_height(buffers: list[Buffer]) -> int | None:
    """The lowest height of any layout, over all orders of offsets; None where fixed ones collide.

    Take a lowest layout and drop each buffer, in order of offset, onto those below it: no higher, and it is
    what this does for that order.
    """
    alive = [b for b in buffers if b.lower < b.upper and b.size > 0]
    best: int | None = 0 if not alive else None
    for order in permutations(alive):
        tops: list[tuple[Buffer, int]] = []
        for buffer in order:
            floor = max((top for o, top in tops if o.lower < buffer.upper and buffer.lower < o.upper), default=0)
            offset = -(-floor // buffer.alignment) * buffer.alignment
            if buffer.offset is not None:
                if offset > buffer.offset:
                    break
                offset = buffer.offset
            tops.append((buffer, offset + buffer.size))
        else:
            height = max((top for _, top in tops), default=0)
            best = height if best is None else min(best, height)
    return best


def overlaps(buffers: list[Buffer], offsets: list[int]) -> set[tuple[int, int]]:
    """All pairs that share an address at some time."""
    found = set()
    for j, b in enumerate(buffers):
        for i, a in enumerate(buffers[:j]):
            in_time = max(a.lower, b.lower) < min(a.upper, b.upper)
            in_space = max(offsets[i], offsets[j]) < min(offsets[i] + a.size, offsets[j] + b.size)
            if in_time and in_space:
                found.add((i, j))
    return found


def perfect_packing(rng: random.Random, count: int, width: int = 1000, height: int = 1000) -> list[Buffer]:
    """A rectangle cut up at random: problems without slack, whose lowest height is known to be `height`."""
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        splittable = [i for i, (a, b, lo, hi) in enumerate(pieces) if b - a > 1 or hi - lo > 1]
        if not splittable:
            break
        weights = [(pieces[i][1] - pieces[i][0]) * (pieces[i][3] - pieces[i][2]) for i in splittable]
        left, right, low, high = pieces.pop(rng.choices(splittable, weights)[0])
        along_time = rng.random() < 0.5 if right - left > 1 and high - low > 1 else right - left > 1
        if along_time:
            cut = rng.randrange(left + 1, right)
            pieces += [(left, cut, low, high), (cut, right, low, high)]
        else:
            cut = rng.randrange(low + 1, high)
            pieces += [(left, right, low, cut), (left, right, cut, high)]
    rng.shuffle(pieces)
    return [Buffer(i, a, b, hi - lo) for i, (a, b, lo, hi) in enumerate(pieces)]


def effort_case() -> list[Buffer]:
    """200 buffers with a load of 102,400 bytes that first fit lays out in 118,784 at best."""
    return [Buffer(i, i, i + 7 + (37 * i) % 23, 512 * (1 + (61 * i) % 17)) for i in range(200)]


@st.composite
def buffers(
    draw: st.DrawFn, max_count: int = 6, max_time: int = 6, max_size: int = 8, fixed: bool = False
) -> list[Buffer]:
    rows = []
    for i in range(draw(st.integers(0, max_count))):
        lower = draw(st.integers(0, max_time))
        upper = draw(st.integers(lower, max_time))
        alignment = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
        offset = None
        if fixed and draw(st.integers(0, 3)) == 0:
            offset = alignment * draw(st.integers(0, 6))
        rows.append(Buffer(i, lower, upper, draw(st.integers(0, max_size)), alignment, offset))
    return rows
