"""What a buffer's bytes should be: which range was last stamped with which seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["Contents", "Seeds", "count_differences", "pattern"]

Span = tuple[int, int, int]

_MULTIPLIER = 0x9E3779B1
_MASK = 0xFFFFFFFF
_CHUNK = 4 << 20


class Contents:
    """The stamped ranges of one buffer, (start, end, seed) in order and without overlap."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()

    def write(self, start: int, end: int, seed: int) -> None:
        """Bytes ``start`` to ``end`` now hold the pattern of ``seed``."""
        if start >= end:
            return
        kept: list[Span] = []
        for span in self.spans:
            first, last, old = span
            if last <= start or first >= end:
                kept.append(span)
                continue
            if first < start:
                kept.append((first, start, old))
            if last > end:
                kept.append((end, last, old))
        kept.append((start, end, seed))
        if len(kept) > 1:
            kept.sort()
        self.spans = tuple(kept)

    def within(self, start: int, end: int) -> list[Span]:
        """The stamped parts of a range."""
        return [
            (max(first, start), min(last, end), seed)
            for first, last, seed in self.spans
            if first < end and last > start
        ]

    def forget(self) -> None:
        """Nothing is known of the contents any more."""
        self.spans = ()


class Seeds:
    """Seeds that differ in both halves from one to the next."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> int:
        """A seed not given before."""
        self._count += 1
        return self._count * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF


def pattern(seed: int, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """The bytes that ``memx_stamp`` writes: byte b is byte b & 3 of a word made of b >> 2 and the seed."""
    first, last = offset >> 2, (offset + nbytes + 3) >> 2
    words = np.arange(first, last, dtype=np.uint64) * np.uint64(_MULTIPLIER)
    words += np.uint64(seed >> 32)
    words &= np.uint64(_MASK)
    words ^= np.uint64(seed & _MASK)
    skipped = offset - (first << 2)
    every: npt.NDArray[np.uint8] = words.astype("<u4").view(np.uint8)
    return every[skipped : skipped + nbytes]


def count_differences(contents: Contents, read: Callable[[int, npt.NDArray[np.uint8]], None]) -> int:
    """How many stamped bytes are not what they should be.

    Parameters
    ----------
    contents : Contents
    read : callable
        ``read(offset, into)`` fills an array with the buffer's bytes from ``offset`` on.
    """
    differences = 0
    for start, end, seed in contents.spans:
        for offset in range(start, end, _CHUNK):
            found = np.empty(min(_CHUNK, end - offset), np.uint8)
            read(offset, found)
            differences += int(np.count_nonzero(found != pattern(seed, offset, len(found))))
    return differences
