"""Real traces and hard public problems, where they lie beside the checkout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from plan_problems import SHARED

from memx.plan import check_layout, layout, read_buffers

TRACES = sorted((SHARED / "data" / "traces").glob("*.jsonl.gz"))


@pytest.mark.skipif(not TRACES, reason="the recorded traces are not beside this checkout")
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name.split(".")[0])
def test_real_traces_are_laid_out_within_0_2_percent_at_once(path: Path) -> None:
    buffers, _ = read_buffers(path)
    with gzip.open(path) as file:
        peak = json.loads(file.readline())["peak_live_bytes"]
    result = layout(buffers, method="greedy")
    check_layout(buffers, result.offsets)
    assert result.lower_bound == peak
    assert result.height <= 1.002 * peak
    assert result.seconds <= 1.0


HARD = sorted((SHARED / "data" / "minimalloc").glob("?.1048576.csv"))


@pytest.mark.skipif(not HARD, reason="minimalloc's problems are not beside this checkout")
@pytest.mark.parametrize("path", HARD, ids=lambda p: p.name[0])
def test_hard_public_problems_fit(path: Path) -> None:
    buffers, _ = read_buffers(path)
    result = layout(buffers, capacity=1_048_576, time_limit=30)
    assert result.fits
    check_layout(buffers, result.offsets, 1_048_576)
