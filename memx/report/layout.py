"""Layouts: when a buffer is alive, and which addresses it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from numpy.typing import NDArray

__all__ = ["draw_layout"]


def draw_layout(
    axes: Axes,
    *,
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    height: int | None = None,
    **look: Any,
) -> PolyCollection:
    """Draw each buffer as a rectangle, time to the right and addresses upwards.

    Parameters
    ----------
    axes : Axes
    lower, upper, offset, size : int64 arrays
    height : int, optional
        Bytes that the axis reaches, and more; None: to the highest buffer.
    **look
        Of the rectangles, such as ``array``, numbers to colour them by, or ``facecolors``.
    """
    from matplotlib.collections import PolyCollection

    height = int(np.max(offset + size, initial=0)) if height is None else height
    unit, unit_name = style.unit_for([height])
    bottom, top = offset / unit, (offset + size) / unit
    corners = np.stack([lower, bottom, lower, top, upper, top, upper, bottom], axis=1).reshape(-1, 4, 2)
    if "array" in look:
        look.setdefault("cmap", "viridis")
    look = {"edgecolors": "white", "linewidths": 0.25, **look}
    rectangles = PolyCollection(list(corners), **look)
    axes.add_collection(rectangles)
    axes.set_xlim((int(lower.min()), int(upper.max())) if len(lower) else (0, 1))
    axes.set_ylim(0, height / unit * 1.05 or 1)
    axes.set_ylabel(f"address ({unit_name})")
    axes.spines[["top", "right"]].set_visible(False)
    return rectangles
