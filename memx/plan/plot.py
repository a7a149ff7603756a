"""Pictures of layouts: time across, addresses up, one rectangle a buffer."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from ..report import new_figure, save_figure, style
from ..report.layout import draw_layout
from ..sizes import format_size
from ..trace.files import written_whole
from .buffers import Buffers, Column
from .layouts import Layout
from .page import page_of, tag_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "PICTURE_SUFFIXES", "figure_of", "plot_layout"]

PICTURE_SUFFIXES = (".html", ".png", ".svg", ".pdf")
COLOURS = ("size", "tag")

# More than these are one image in an SVG or PDF, and more tags than these have no place in a legend.
_MOST_SHAPES = 20_000
_MOST_TAGS = 12


def plot_layout(
    path: str | PathLike[str],
    buffers: Buffers,
    layout: Layout,
    title: str = "",
    *,
    time: str = "time",
    colour: str = "size",
) -> None:
    """Draw one rectangle a buffer, the live bytes over time, their bound, the height and the capacity.

    Parameters
    ----------
    path : path
        Ends in ``.html``, a page to look around in that needs nothing but a browser, or in ``.png``, ``.svg`` or
        ``.pdf``, which need matplotlib.
    buffers : Buffers
    layout : Layout
    title : str, optional
    time : str
        What time counts.
    colour : str
        ``"size"`` or ``"tag"``: what colours say first on the page, for good in the others. Where nothing has a
        tag they say the size.

    Raises
    ------
    PlanError, InvalidValueError
        The file cannot be written.
    MissingMatplotlibError
    """
    target = Path(path)
    title = title or f"{len(buffers):,} buffers"
    if target.suffix == ".html":
        try:
            with written_whole(target) as part:
                part.write_text(page_of(buffers, layout, title, time, colour), encoding="utf-8")
        except OSError as error:
            raise PlanError(f"{target}: {error.strerror}") from None
        return
    save_figure(figure_of(buffers, layout, title, time, colour), target)


def figure_of(buffers: Buffers, layout: Layout, title: str, time: str, colour: str) -> Figure:
    """The picture before it is written; see :func:`plot_layout`."""
    figure = new_figure(12, 7)
    axes = figure.add_subplot()
    _draw(figure, axes, buffers, layout, colour)
    axes.set_xlabel(time)
    axes.set_title(f"{title}: {len(buffers):,} buffers, {layout.method}", fontsize=11, loc="left")
    return figure


def _draw(figure: Figure, axes: Axes, buffers: Buffers, layout: Layout, colour: str) -> None:
    chosen = np.flatnonzero(buffers.occupying)
    shown = max(layout.height, layout.lower_bound)
    if layout.capacity is not None and layout.capacity <= 1.5 * shown:
        shown = max(shown, layout.capacity)
    unit, _ = style.unit_for([shown])
    tags, group, _ = tag_groups(buffers, chosen)
    by_tag = colour == "tag" and bool(tags)
    rectangles = draw_layout(
        axes,
        lower=buffers.lower[chosen],
        upper=buffers.upper[chosen],
        offset=layout.offsets[chosen],
        size=buffers.size[chosen],
        height=shown,
        linewidths=_seams(buffers, chosen, shown),
        rasterized=len(chosen) > _MOST_SHAPES,
        **(_tag_colours(group) if by_tag else _size_colours(buffers.size[chosen])),
    )
    _draw_lines(axes, buffers, layout, unit)
    handles, labels = axes.get_legend_handles_labels()
    if by_tag:
        from matplotlib.patches import Patch

        handles += [Patch(color=style.TAGS[k % len(style.TAGS)]) for k in range(len(tags))][:_MOST_TAGS]
        labels += [tag or "without a tag" for tag in tags][:_MOST_TAGS]
    elif len(chosen):
        as_size = lambda nbytes, _position: format_size(round(nbytes))  # noqa: E731
        bar = figure.colorbar(rectangles, ax=axes, label="size of a buffer", pad=0.01, format=as_size)
        bar.minorticks_off()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)


def _seams(buffers: Buffers, chosen: Column, shown: int) -> npt.NDArray[np.float64]:
    """A seam around each rectangle that has room for one: it would cover the others."""
    across = buffers.upper[chosen] - buffers.lower[chosen]
    total = int(buffers.upper[chosen].max() - buffers.lower[chosen].min()) if len(chosen) else 1
    roomy = (across > total / 300) & (buffers.size[chosen] > shown / 200)
    return np.where(roomy, 0.6, 0.0)


def _draw_lines(axes: Axes, buffers: Buffers, layout: Layout, unit: int) -> None:
    times, nbytes = buffers.load()
    axes.step(times, nbytes / unit, where="post", color=style.LIMIT, linewidth=1.2, label="alive")
    lines = [
        (layout.lower_bound, "bound", style.LIMIT, "--"),
        (layout.height, "height", "black", "-"),
        (layout.capacity, "capacity", "darkorange", ":"),
    ]
    for level, name, line_colour, dashes in lines:
        if level is not None:
            label = f"{name} {level:,} B"
            axes.axhline(level / unit, color=line_colour, linestyle=dashes, linewidth=1.3, label=label)


def _size_colours(sizes: npt.NDArray[Any]) -> dict[str, Any]:
    from matplotlib.colors import LogNorm

    return {"array": sizes, "norm": LogNorm() if len(sizes) else None}


def _tag_colours(group: Column) -> dict[str, Any]:
    return {"facecolors": [style.TAGS[k % len(style.TAGS)] for k in group.tolist()]}
