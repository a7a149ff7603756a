"""The independent check of a layout: shares nothing with what computes layouts but the problem."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from .buffers import Buffers, Column

__all__ = ["check_layout", "find_overlap"]


def check_layout(buffers: Buffers, offsets: Column, capacity: int | None = None) -> None:
    """Prove that a layout holds.

    Parameters
    ----------
    buffers : Buffers
        The problem.
    offsets : int64 array
        An offset for each buffer.
    capacity : int, optional
        Bytes that no buffer may pass.

    Raises
    ------
    PlanError
        Naming the first buffers that overlap, or the one that is misplaced.
    """
    if offsets.shape != (len(buffers),) or offsets.dtype != np.int64:
        raise PlanError(
            f"a layout of {len(buffers)} buffers needs as many int64 offsets, not {offsets.dtype}{list(offsets.shape)}"
        )

    def refuse(bad: npt.NDArray[np.bool_], problem: str) -> None:
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise PlanError(f"{buffers.name(i)} at offset {offsets[i]} {problem.format(i=i)}")

    refuse(offsets < 0, "lies below zero")
    refuse(offsets % buffers.alignment != 0, "is not aligned as it asks")
    refuse((buffers.fixed >= 0) & (buffers.fixed != offsets), "is not where it was fixed")
    refuse(offsets > np.iinfo(np.int64).max - buffers.size, "ends beyond 64-bit offsets")
    if capacity is not None:
        refuse(
            buffers.occupying & (offsets + buffers.size > capacity),
            f"passes the capacity of {capacity} bytes",
        )
    pair = find_overlap(buffers, offsets)
    if pair is not None:
        a, b = pair
        raise PlanError(
            f"{buffers.name(a)} at offset {offsets[a]} and {buffers.name(b)} at offset {offsets[b]} "
            f"overlap while both are alive"
        )


def find_overlap(buffers: Buffers, offsets: Column) -> tuple[int, int] | None:
    """Indices of two buffers that share an address at some time, or None.

    The moments of birth are the leaves of a binary tree. A lifetime is cut into the largest nodes that it
    fills; two lifetimes meet exactly if a node of one is a node of the other, or lies below one. So at each
    node those that fill it must be disjoint from each other and from those that reach into it: one sort by
    offset and one running maximum a level. Time: O(n log^2 n), in numpy.
    """
    chosen = np.flatnonzero(buffers.occupying)
    chosen = chosen[np.argsort(offsets[chosen], kind="stable")]
    n = len(chosen)
    if n < 2:
        return None
    births = np.sort(buffers.lower[chosen])
    births = births[np.concatenate([[True], births[1:] != births[:-1]])]
    begin = _below(births, buffers.lower[chosen])
    end = _below(births, buffers.upper[chosen])
    bottoms = offsets[chosen]
    # Buffers are known by rank of offset from here; `reach` of them and more begin at or above the top.
    reach = _below(bottoms, bottoms + buffers.size[chosen])
    bits = int(n).bit_length()

    low, high, going = begin, end, np.arange(n)
    for level in range(len(births).bit_length() + 1):
        left, right = low & 1 == 1, high & 1 == 1
        filled = np.concatenate([low[left], high[right] - 1])
        if len(filled):
            fillers = (filled << bits) + np.concatenate([going[left], going[right]])
            reaching = _reaching(begin, end, level, filled, bits)
            clash = _clash(fillers, reaching, reach, bits)
            if clash is not None:
                return _partner(buffers, offsets, int(chosen[clash]))
        low, high = (low + left) >> 1, (high - right) >> 1
        more = low < high
        if not more.any():
            break
        low, high, going = low[more], high[more], going[more]
    return None


def _below(ascending: Column, values: Column) -> Column:
    """How many of ``ascending`` are below each value; asked in order, which is far quicker."""
    order = np.argsort(values)
    counts = np.empty(len(values), np.int64)
    counts[order] = np.searchsorted(ascending, values[order])
    return counts


def _reaching(begin: Column, end: Column, level: int, filled: Column, bits: int) -> Column:
    """(node, rank) keys of lifetimes that cover a part, not all, of a node that others fill."""
    if level == 0:
        return np.zeros(0, np.int64)
    head, tail = begin >> level, (end - 1) >> level
    wanted = np.zeros(int(tail.max()) + 1, bool)
    wanted[filled] = True
    first = np.flatnonzero(wanted[head])
    first = first[(head[first] << level < begin[first]) | ((head[first] + 1) << level > end[first])]
    last = np.flatnonzero(wanted[tail] & (head != tail))
    last = last[(tail[last] + 1) << level > end[last]]
    return np.concatenate([(head[first] << bits) + first, (tail[last] << bits) + last])


def _clash(fillers: Column, reaching: Column, reach: Column, bits: int) -> int | None:
    """Rank of a buffer that lies on a filler of its node, or of a filler that lies on another buffer."""
    keys = np.concatenate([fillers * 2 + 1, reaching * 2])
    keys.sort()
    fills = (keys & 1).astype(bool)
    here = keys >> 1
    rank = here & ((1 << bits) - 1)
    top = here + (reach[rank] - rank)
    below_fillers = np.maximum.accumulate(np.where(fills, top, -1))
    below_any = np.maximum.accumulate(top)
    bad = (below_fillers[:-1] > here[1:]) | (fills[1:] & (below_any[:-1] > here[1:]))
    return int(rank[1:][bad][0]) if bad.any() else None


def _partner(buffers: Buffers, offsets: Column, index: int) -> tuple[int, int]:
    meets = (
        buffers.occupying
        & (buffers.lower < buffers.upper[index])
        & (buffers.lower[index] < buffers.upper)
        & (offsets < offsets[index] + buffers.size[index])
        & (offsets[index] < offsets + buffers.size)
    )
    meets[index] = False
    other = int(np.flatnonzero(meets)[0])
    return min(index, other), max(index, other)
