"""A layout as one HTML page to look around in, with everything that it needs inside."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

import numpy as np

from ...report.style import RAMP, TAGS
from ..buffers import Buffers, Column
from ..layouts import Layout

__all__ = ["page_of", "tag_groups"]

_SCRIPTS = ("index.js", "model.js", "view.js", "paint.js", "main.js")


def page_of(buffers: Buffers, layout: Layout, title: str, time: str, colour: str, summary: str = "") -> str:
    """The page's text; see :func:`memx.plan.plot.plot_layout`. A summary stands for what it says of the layout."""
    assets = files(__package__)

    def asset(name: str) -> str:
        return assets.joinpath(name).read_text("utf-8")

    script = "\n".join(asset(name) for name in _SCRIPTS)
    data = json.dumps({**_data(buffers, layout, time, colour), "summary": summary}, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "style": asset("page.css"),
        "script": f'(() => {{\n"use strict";\n{script}}})();',
        # Nothing in the data ends the element that it is in.
        "data": data.replace("<", "\\u003c"),
    }
    page = asset("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--memx:{name}-->", text)
    return page


def tag_groups(buffers: Buffers, chosen: Column) -> tuple[list[str | None], Column, list[int]]:
    """Tags of the chosen buffers, those with the most bytes alive at once first; none if nothing has a tag.

    Returns
    -------
    tags : list of str or None
    group : int64 array
        For each chosen buffer, which tag.
    peaks : list of int
        For each tag, its most bytes alive at once.
    """
    labels = [buffers.tags[int(i)] for i in chosen] if buffers.tags is not None else []
    if not any(labels):
        return [], np.zeros(len(chosen), np.int64), []
    numbers: dict[str | None, int] = {}
    group = np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)
    peaks = []
    for number in numbers.values():
        mine = chosen[group == number]
        part = Buffers(range(len(mine)), buffers.lower[mine], buffers.upper[mine], buffers.size[mine])
        peaks.append(part.max_load())
    order = sorted(range(len(peaks)), key=lambda number: -peaks[number])
    names = list(numbers)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return [names[number] for number in order], rank[group], [peaks[number] for number in order]


def _data(buffers: Buffers, layout: Layout, time: str, colour: str) -> dict[str, Any]:
    chosen = np.flatnonzero(buffers.occupying)
    begin = int(buffers.lower[chosen].min()) if len(chosen) else 0
    times, nbytes = buffers.load()
    tags, group, peaks = tag_groups(buffers, chosen)
    return {
        "ids": [buffers.ids[int(i)] for i in chosen],
        # Times count from the first: those since 1970 in nanoseconds are too large for a double.
        "begin": str(begin),
        "lower": (buffers.lower[chosen] - begin).tolist(),
        "upper": (buffers.upper[chosen] - begin).tolist(),
        "size": buffers.size[chosen].tolist(),
        "offset": layout.offsets[chosen].tolist(),
        "tag": group.tolist(),
        "tags": tags,
        "tag_peaks": peaks,
        "load_times": (times - begin).tolist(),
        "load_bytes": nbytes.tolist(),
        "height": layout.height,
        "bound": layout.lower_bound,
        "capacity": layout.capacity,
        "optimal": layout.optimal,
        "method": layout.method,
        "time": time,
        "colour_by": colour if tags else "size",
        "ramp_colours": RAMP,
        "tag_colours": TAGS,
    }
