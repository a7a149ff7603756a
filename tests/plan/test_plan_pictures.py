"""What PNG and SVG show: the same rectangles, lines and colours as the page."""

from __future__ import annotations

import numpy as np
import pytest

from memx.plan import Buffer, Buffers, layout
from memx.plan.plot import figure_of
from memx.report import style

pytest.importorskip("matplotlib")

ROWS = Buffers.of(
    [
        Buffer("a", 10, 30, 3 << 20, tag="forward"),
        Buffer("b", 20, 40, 1 << 20, tag="backward"),
        Buffer("c", 30, 50, 2 << 20, tag="backward"),
        Buffer("never", 15, 15, 9 << 20),
    ]
)
FOUND = layout(ROWS, capacity=5 << 20)


def test_one_rectangle_for_each_buffer_that_lives_in_its_place() -> None:
    axes = figure_of(ROWS, FOUND, "t", "event of the trace", "size").axes[0]
    (rectangles,) = axes.collections
    boxes = {tuple(path.get_extents().extents.tolist()) for path in rectangles.get_paths()}
    assert boxes == {
        (b.lower, offset / (1 << 20), b.upper, (offset + b.size) / (1 << 20))
        for b, offset in zip(ROWS, FOUND.offsets.tolist(), strict=True)
        if b.id != "never"
    }
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("event of the trace", "address (MiB)")
    assert axes.get_xlim() == (10, 50)
    assert rectangles.get_array().tolist() == [3 << 20, 1 << 20, 2 << 20]


def test_the_live_bytes_their_bound_the_height_and_the_capacity() -> None:
    axes = figure_of(ROWS, FOUND, "t", "time", "size").axes[0]
    alive, *levels = axes.get_lines()
    assert alive.get_drawstyle() == "steps-post"
    assert alive.get_xdata().tolist() == [10, 20, 30, 40, 50]
    assert alive.get_ydata().tolist() == [3, 4, 3, 2, 0]
    assert [line.get_ydata()[0] for line in levels] == [4, 4, 5]
    names = [str(line.get_label()).split()[0] for line in levels]
    assert names == ["bound", "height", "capacity"]


def test_colours_by_tag() -> None:
    from matplotlib.colors import to_hex

    figure = figure_of(ROWS, FOUND, "t", "time", "tag")
    (rectangles,) = figure.axes[0].collections
    # Forward and backward hold 3 MiB each at most; the first seen comes first.
    assert [to_hex(colour) for colour in rectangles.get_facecolors()] == [style.TAGS[0], style.TAGS[1], style.TAGS[1]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[-2:] == ["forward", "backward"]
    untagged = Buffers(ROWS.ids, ROWS.lower, ROWS.upper, ROWS.size)
    assert figure_of(untagged, FOUND, "t", "time", "tag").axes[0].collections[0].get_array() is not None


def test_times_far_from_zero_fill_the_picture() -> None:
    late = Buffers(["a"], np.array([10**15]), np.array([10**15 + 5]), np.array([8]))
    assert figure_of(late, layout(late), "t", "time", "size").axes[0].get_xlim() == (10**15, 10**15 + 5)
