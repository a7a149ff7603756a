"""Colours and units that the pictures share."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DEVICE", "HOST", "LIMIT", "LIVE", "MUTED", "unit_for"]

DEVICE = "#2a9d8f"
HOST = "#e9a23b"
LIVE = "#1d3557"
LIMIT = "#c1121f"
MUTED = "#6c757d"

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def unit_for(values: Iterable[int]) -> tuple[int, str]:
    """The unit to draw byte counts in: the largest in which the largest of them is at least 2."""
    most = max(values, default=0)
    for nbytes, name in _UNITS:
        if most >= 2 * nbytes:
            return nbytes, name
    return 1, "bytes"
