"""Layouts: when a buffer is alive, and which addresses it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["draw_layout"]


def draw_layout(
    axes: Axes,
    *,
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    shade: NDArray[np.int64],
) -> None:
    """Draw each buffer as a rectangle, time to the right and addresses upwards, coloured by ``shade``."""
    from matplotlib.collections import PolyCollection

    height = int(np.max(offset + size, initial=0))
    unit, unit_name = style.unit_for([height])
    bottom, top = offset / unit, (offset + size) / unit
    corners = np.stack(
        [
            np.stack([lower, bottom], axis=1),
            np.stack([upper, bottom], axis=1),
            np.stack([upper, top], axis=1),
            np.stack([lower, top], axis=1),
        ],
        axis=1,
    )
    axes.add_collection(PolyCollection(list(corners), array=shade, cmap="viridis", edgecolors="white", linewidths=0.25))
    axes.set_xlim(int(np.min(lower, initial=0)), int(np.max(upper, initial=1)))
    axes.set_ylim(0, height / unit * 1.05 or 1)
    axes.set_ylabel(f"address ({unit_name})")
    axes.spines[["top", "right"]].set_visible(False)
