"""The smallest device that something runs on."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["smallest_pages"]


def smallest_pages(works: Callable[[int], bool], low: int, high: int) -> int:
    """Fewest pages with which something works, by bisection.

    Parameters
    ----------
    works : callable
        Whether it does with a number of pages; asked for at least one.
    low, high : int
        A number known to be too few, and one known to be enough.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if middle > 0 and works(middle):
            high = middle
        else:
            low = middle
    return high
