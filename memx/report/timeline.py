"""Memory over the course of a trace: what the program held, and where it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..replay.results import Sample
from ..sizes import format_size
from . import new_figure, save_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..replay import Limits

__all__ = ["draw_timeline", "write_timeline"]


def draw_timeline(axes: Axes, samples: Sequence[Sample], device_limit: int) -> None:
    """Draw device and host memory stacked, with the program's live bytes and the limit as lines."""
    x = [sample.event for sample in samples]
    limit_shown = device_limit <= 4 * max((sample.live_bytes for sample in samples), default=0)
    heights = [sample.reserved_bytes + sample.host_bytes for sample in samples]
    heights += [sample.live_bytes for sample in samples] + [device_limit if limit_shown else 0]
    unit, unit_name = style.unit_for(heights)
    axes.stackplot(
        x,
        [sample.reserved_bytes / unit for sample in samples],
        [sample.host_bytes / unit for sample in samples],
        labels=["GPU memory held", "host memory held"],
        colors=[style.DEVICE, style.HOST],
        alpha=0.85,
        linewidth=0,
    )
    live = [sample.live_bytes / unit for sample in samples]
    axes.plot(x, live, color=style.LIVE, linewidth=1.6, label="what the program has allocated")
    if limit_shown:
        axes.axhline(
            device_limit / unit,
            color=style.LIMIT,
            linestyle="--",
            linewidth=1.6,
            label=f"all the GPU memory there is ({format_size(device_limit)})",
        )
    axes.set_ylabel(unit_name)
    axes.set_ylim(0, max(heights) / unit * 1.3 or 1)
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)


def write_timeline(path: Path, name: str, limits: Limits, samples: Sequence[Sample]) -> None:
    """A picture of one replay."""
    figure = new_figure(10, 5)
    axes = figure.subplots()
    draw_timeline(axes, samples, limits.device_limit)
    axes.set_title(name, loc="left", fontweight="bold")
    axes.set_xlabel("event of the trace")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, path)
