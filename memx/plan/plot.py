"""A picture of a layout: time across, addresses up."""

from __future__ import annotations

from os import PathLike, fspath

import numpy as np

from ..errors import PlanError
from .buffers import Buffers
from .layouts import Layout

__all__ = ["PICTURE_SUFFIXES", "plot_layout"]

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def plot_layout(path: str | PathLike[str], buffers: Buffers, layout: Layout, title: str = "") -> None:
    """Draw one rectangle a buffer, coloured by size, the live bytes over time, the bound and the capacity.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf``.
    buffers : Buffers
    layout : Layout
    title : str, optional

    Raises
    ------
    PlanError
        Matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure
    except ImportError:
        raise PlanError("pictures need matplotlib: pip install 'memx[plot]'") from None

    use = np.flatnonzero(buffers.occupying)
    unit, unit_name = next((u for u in _UNITS if layout.height >= 2 * u[0]), _UNITS[-1])
    left, right = buffers.lower[use], buffers.upper[use]
    bottom = layout.offsets[use] / unit
    top = (layout.offsets[use] + buffers.size[use]) / unit

    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.add_subplot()
    outline = np.stack([left, bottom, left, top, right, top, right, bottom], axis=1)
    corners = list(outline.reshape(-1, 4, 2))
    dense = len(use) > 20_000
    rectangles = PolyCollection(
        corners,
        array=buffers.size[use] / unit,
        cmap="viridis",
        norm=LogNorm() if len(use) else None,
        edgecolors="white",
        linewidths=0.6 if len(use) <= 500 else 0.0,
        rasterized=dense,
    )
    axes.add_collection(rectangles)
    times, nbytes = buffers.load()
    axes.step(times, nbytes / unit, where="post", color="crimson", linewidth=1.2, label="alive")
    bound = layout.lower_bound
    axes.axhline(bound / unit, color="crimson", linestyle="--", linewidth=1, label=f"bound {bound:,} B")
    axes.axhline(layout.height / unit, color="black", linewidth=1, label=f"height {layout.height:,} B")
    reach = max(layout.height, layout.lower_bound)
    if layout.capacity is not None:
        axes.axhline(
            layout.capacity / unit,
            color="darkorange",
            linestyle=":",
            linewidth=1.5,
            label=f"capacity {layout.capacity:,} B",
        )
        if layout.capacity <= 1.5 * reach:
            reach = max(reach, layout.capacity)
    if len(use):
        axes.set_xlim(left.min(), right.max())
        figure.colorbar(rectangles, ax=axes, label=f"size of a buffer ({unit_name})", pad=0.01)
    axes.set_ylim(0, max(reach, 1) * 1.1 / unit)
    axes.set_xlabel("time")
    axes.set_ylabel(f"address ({unit_name})")
    axes.set_title(f"{title}{': ' if title else ''}{len(buffers)} buffers, {layout.method}", fontsize=11)
    axes.legend(loc="upper right", ncols=4, fontsize=9, framealpha=0.9)
    try:
        figure.savefig(fspath(path), dpi=150)
    except OSError as error:
        raise PlanError(f"{fspath(path)}: {error.strerror}") from None
