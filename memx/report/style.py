"""Colours and units that the pictures share."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DEVICE", "HOST", "LIMIT", "LIVE", "MUTED", "RAMP", "TAGS", "unit_for"]

DEVICE = "#2a9d8f"
HOST = "#e9a23b"
LIVE = "#1d3557"
LIMIT = "#c1121f"
MUTED = "#6c757d"

#: From small to large, evenly spaced: Matplotlib's viridis.
RAMP = (
    "#440154",
    "#482878",
    "#3e4989",
    "#31688e",
    "#26828e",
    "#1f9e89",
    "#35b779",
    "#6ece58",
    "#b5de2b",
    "#fde725",
)
#: For tags, in this order and then again.
TAGS = (
    "#3b7dd8",
    "#e8842c",
    "#3fa35b",
    "#d64550",
    "#8e63c7",
    "#20a8a8",
    "#d9b12f",
    "#c85a9c",
    "#7d8a3a",
    "#8a6a52",
    "#5b6b8c",
    "#9fb4c9",
)

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def unit_for(values: Iterable[int]) -> tuple[int, str]:
    """The unit to draw byte counts in: the largest in which the largest of them is at least 2."""
    most = max(values, default=0)
    for nbytes, name in _UNITS:
        if most >= 2 * nbytes:
            return nbytes, name
    return 1, "bytes"
