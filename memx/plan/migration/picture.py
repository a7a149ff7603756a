"""Pictures of segment plans: time across, memory up, one rectangle a stay on the device, its moves marked."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import PlanError
from ...report import new_figure, save_figure, style
from ...report.layout import draw_layout
from ...trace.files import written_whole
from ..buffers import Buffers, Column
from ..layouts import Layout, layout
from ..page import page_of
from ..plot import PICTURE_SUFFIXES
from .moves import Move
from .result import SegmentPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PICTURE_SUFFIXES", "figure_of", "plot_segments", "stays_of"]

_MOST_SHAPES = 20_000
_KINDS = (
    ("copied in, dropped", style.DEVICE),
    ("copied in, copied out", "#7b5ea7"),
    ("produced, dropped", "#b9c4cf"),
    ("produced, copied out", style.HOST),
)


class Stays:
    """Objects' stays on the device as rectangles: steps across, bytes up."""

    def __init__(self, plan: SegmentPlan, moves: list[Move]) -> None:
        open_at: dict[int, Move] = {}
        rows: list[tuple[int, int, int, int]] = []
        end = len(plan.problem.steps)
        for move in moves:
            if move.kind in ("in", "make"):
                open_at[move.object] = move
            else:
                came = open_at.pop(move.object)
                kind = 2 * (came.kind == "make") + (move.kind == "out")
                rows.append((move.object, came.step, move.step, kind))
        rows += [(o, came.step, end, 2 * (came.kind == "make")) for o, came in open_at.items()]
        table = np.array(rows, np.int64).reshape(-1, 4)
        self.object, self.begin, self.end, self.kind = (np.ascontiguousarray(table[:, i]) for i in range(4))
        self.size = plan.problem.size[self.object]
        self.floors, self.heights = _floors(plan)
        self.home = np.maximum(plan.homes[self.object], 0)
        self.offset = self.floors[self.home] + self._within(plan)

    def _within(self, plan: SegmentPlan) -> Column:
        """Places within each segment; where they would reach beyond it, which bytes can, drawn from its floor."""
        offsets = np.zeros(len(self.object), np.int64)
        if plan.mode == "exclusive":
            return offsets
        for segment in range(len(self.floors)):
            mine = np.flatnonzero(self.home == segment)
            if not len(mine):
                continue
            buffers = Buffers(range(len(mine)), self.begin[mine], self.end[mine], self.size[mine])
            placed = layout(buffers, int(self.heights[segment]), 1.0, method="greedy")
            reach = max(placed.height, int(self.heights[segment]))
            offsets[mine] = placed.offsets * int(self.heights[segment]) // max(1, reach)
        return offsets

    def buffers(self, plan: SegmentPlan) -> Buffers:
        """The same as buffers, tagged by how they come and go."""
        ids = [plan.problem.ids[int(o)] for o in self.object]
        tags = [_KINDS[int(kind)][0] for kind in self.kind]
        return Buffers(ids, self.begin, self.end, self.size, tags=tags)


def _floors(plan: SegmentPlan) -> tuple[Column, Column]:
    heights = np.array(plan.segments or [plan.capacity], np.int64)
    return np.concatenate([[0], np.cumsum(heights)[:-1]]), heights


def stays_of(plan: SegmentPlan) -> Stays:
    """The rectangles of a feasible plan."""
    return Stays(plan, plan.moves(linger=False))


def plot_segments(path: str | PathLike[str], plan: SegmentPlan, title: str) -> None:
    """Draw a plan.

    Parameters
    ----------
    path : path
        Ends in ``.html``, a page to look around in, or in ``.png``, ``.svg`` or ``.pdf``, which need matplotlib.
    plan : SegmentPlan
        A feasible one.
    title : str

    Raises
    ------
    PlanError, InvalidValueError
        The file cannot be written, or there is no plan.
    MissingMatplotlibError
    """
    target = Path(path)
    if not plan.feasible:
        raise PlanError(f"{target}: there is no plan to draw: {plan.reason}")
    if target.suffix != ".html":
        save_figure(figure_of(plan, f"{title}: {_summary(plan)}"), target)
        return
    stays = stays_of(plan)
    proof = "no plan of this kind moves less" if plan.optimal else "less is not ruled out"
    summary = f"{len(stays.object):,} stays on the device, {_summary(plan)}; {plan.method}: {proof}"
    page = page_of(stays.buffers(plan), _as_layout(plan, stays), title, "operation", "tag", summary)
    try:
        with written_whole(target) as part:
            part.write_text(page, encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{target}: {error.strerror}") from None


def figure_of(plan: SegmentPlan, title: str) -> Figure:
    """The picture before it is written; see :func:`plot_segments`."""
    from matplotlib.patches import Patch

    stays = stays_of(plan)
    figure = new_figure(12, 7)
    axes = figure.add_subplot()
    colours = [_KINDS[int(kind)][1] for kind in stays.kind]
    height = int(stays.floors[-1] + stays.heights[-1])
    draw_layout(
        axes,
        lower=stays.begin,
        upper=stays.end,
        offset=stays.offset,
        size=stays.size,
        height=height,
        facecolors=colours,
        linewidths=0.25 if len(colours) < _MOST_SHAPES else 0,
        rasterized=len(colours) > _MOST_SHAPES,
    )
    unit, _ = style.unit_for([height])
    for floor in stays.floors[1:].tolist():
        axes.axhline(floor / unit, color=style.MUTED, linewidth=0.6)
    axes.set_xlim(0, max(1, len(plan.problem.steps)))
    axes.set_ylabel(axes.get_ylabel().replace("address", "segments" if plan.segments else "device memory"))
    marks = _draw_moves(axes, stays, unit)
    axes.set_xlabel("operation")
    axes.set_title(title, fontsize=11, loc="left")
    used = set(stays.kind.tolist())
    handles = [*(Patch(color=colour, label=name) for k, (name, colour) in enumerate(_KINDS) if k in used), *marks]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=9, frameon=False)
    return figure


def _draw_moves(axes: Axes, stays: Stays, unit: int) -> list[object]:
    """A triangle where a copy begins, upwards to the device, downwards from it."""
    middle = (stays.offset + stays.size / 2) / unit
    marks = []
    for chosen, x, marker, colour, name in (
        (stays.kind < 2, stays.begin, "^", style.LIVE, "copy to the device"),
        (stays.kind % 2 == 1, stays.end, "v", style.LIMIT, "copy to the host"),
    ):
        if chosen.any():
            marks += axes.plot(
                x[chosen],
                middle[chosen],
                marker,
                color=colour,
                markersize=4,
                label=name,
                rasterized=chosen.sum() > 5000,
            )
    return list(marks)


def _as_layout(plan: SegmentPlan, stays: Stays) -> Layout:
    return Layout(
        offsets=stays.offset,
        height=int(stays.floors[-1] + stays.heights[-1]),
        lower_bound=stays.buffers(plan).max_load(),
        optimal=plan.optimal,
        fits=True,
        infeasible=False,
        seconds=plan.seconds,
        method=plan.method,
        capacity=plan.capacity,
        seed=plan.seed,
    )


def _summary(plan: SegmentPlan) -> str:
    parts = f"{len(plan.segments)} segments, {plan.mode}" if plan.segments else "no segments"
    return f"{parts}, {plan.migrated_bytes:,} bytes moved, bound {plan.lower_bound:,}"
