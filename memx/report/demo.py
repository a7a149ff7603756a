"""The demo's picture: what a newcomer should see without reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..sizes import format_size
from . import new_figure, save_figure, style
from .layout import draw_layout
from .timeline import draw_timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..demo import Demo, Part

__all__ = ["write_demo"]

_MODES = {
    "stream": "each stream\nits own",
    "default": "reuse what is\nproven over",
    "mutual": "streams wait\nfor one another",
}


def write_demo(demo: Demo, path: Path) -> None:
    """Draw a finished demo."""
    figure = new_figure(12, 9.5)
    axes: dict[str, Axes] = figure.subplot_mosaic([["lazy", "reuse"], ["store", "layout"]])
    parts = {part.name: part for part in demo.parts}
    _draw_tiers(demo, axes["lazy"], parts["oversubscription"], "1  Half the memory will do: pages move as needed")
    _draw_tiers(demo, axes["store"], parts["store"], "3  Or nothing moves: the rest lives in host memory")
    _draw_reuse(demo, axes["reuse"], parts["reuse"])
    _draw_plan(axes["layout"], parts["layout"])
    where = "simulated GPU" if demo.simulate else "GPU"
    figure.suptitle(
        f"One training step of ResNet-50 on a {where} with half the memory that it needs",
        fontsize=15,
        fontweight="bold",
    )
    save_figure(figure, path)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11.5, fontweight="bold")


def _draw_tiers(demo: Demo, axes: Axes, part: Part, title: str) -> None:
    draw_timeline(axes, part.results[0].samples, demo.limits.device_limit)
    _title(axes, title)
    axes.set_xlabel("the step: forward, backward, update")
    axes.set_xticks([])
    axes.legend(loc="upper left", fontsize=8.5, ncols=2, frameon=False)
    last = part.results[0].samples[-1]
    unit, _ = style.unit_for([demo.trace.peak_live_bytes()])
    axes.annotate(
        "kept for reuse",
        (0.985, last.reserved_bytes / unit / 2),
        xycoords=("axes fraction", "data"),
        ha="right",
        color="white",
        fontsize=10,
    )


def _draw_reuse(demo: Demo, axes: Axes, part: Part) -> None:
    reserved = part.numbers["peak_reserved_bytes_by_mode"]
    live = demo.trace.peak_live_bytes()
    unit, unit_name = style.unit_for([*reserved.values(), live])
    heights = [reserved[mode] / unit for mode in _MODES]
    bars = axes.bar(list(_MODES.values()), heights, color=[style.MUTED, style.DEVICE, style.DEVICE], width=0.6)
    axes.bar_label(bars, [format_size(reserved[mode]) for mode in _MODES], padding=3)
    axes.axhline(live / unit, color=style.LIVE, linewidth=1.6, label="what the program has allocated, at most")
    axes.set_ylabel(f"GPU memory taken ({unit_name})")
    axes.set_ylim(0, max(heights) * 1.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", fontsize=8.5, frameon=False)
    _title(axes, f"2  On {part.numbers['streams']} streams: freed memory is passed on, in order")


def _draw_plan(axes: Axes, part: Part) -> None:
    assert part.plan is not None
    buffers, found = part.plan
    draw_layout(
        axes,
        lower=buffers.lower,
        upper=buffers.upper,
        offset=found.offsets,
        size=buffers.size,
        array=buffers.lower,
    )
    unit, _ = style.unit_for([found.height])
    axes.axhline(found.lower_bound / unit, color=style.LIMIT, linestyle="--", linewidth=1.4)
    axes.annotate(
        "no layout can be lower",
        (0.99, found.lower_bound / unit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
        color=style.LIMIT,
    )
    axes.set_xticks([])
    axes.set_xlabel("the step: forward, backward, update")
    _title(axes, "4  Planned beforehand: every buffer has its address")
