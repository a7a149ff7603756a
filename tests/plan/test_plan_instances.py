"""Real traces, problems that are hard by construction, and hard public ones where they lie beside the checkout."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from plan_problems import SHARED, perfect_packing

from memx.demo import DEMO_TRACE
from memx.plan import Buffers, check_layout, layout, read_buffers

KEPT = sorted((Path(__file__).parent / "data").glob("*.jsonl.gz"))
BESIDE = sorted((SHARED / "data" / "traces").glob("*.jsonl.gz"))
TRACES = {path.name: path for path in (DEMO_TRACE, *KEPT, *BESIDE)}


@pytest.mark.parametrize("name", TRACES, ids=lambda name: name.split(".")[0])
def test_real_traces_are_laid_out_within_0_2_percent_at_once(name: str) -> None:
    path = TRACES[name]
    buffers, _ = read_buffers(path)
    with gzip.open(path) as file:
        peak = json.loads(file.readline())["peak_live_bytes"]
    result = layout(buffers, method="greedy")
    check_layout(buffers, result.offsets)
    assert result.lower_bound == peak
    assert result.height <= 1.002 * peak
    assert result.seconds <= 1.0


@pytest.mark.parametrize("count", [100, 150, 200])
@pytest.mark.parametrize("seed", range(100, 103))
def test_what_was_cut_up_is_put_together_again(count: int, seed: int) -> None:
    """No slack at all: greedy needs a quarter more."""
    rows = perfect_packing(random.Random(seed), count)
    result = layout(rows, capacity=1000, time_limit=30)
    assert result.fits
    assert result.optimal
    check_layout(Buffers.of(rows), result.offsets, 1000)
    assert layout(rows, capacity=999, method="greedy").infeasible


HARD = sorted((SHARED / "data" / "minimalloc").glob("?.1048576.csv"))


@pytest.mark.skipif(not HARD, reason="minimalloc's problems are not beside this checkout")
@pytest.mark.parametrize("path", HARD, ids=lambda p: p.name[0])
def test_hard_public_problems_fit(path: Path) -> None:
    buffers, _ = read_buffers(path)
    result = layout(buffers, capacity=1_048_576, time_limit=30)
    assert result.fits
    check_layout(buffers, result.offsets, 1_048_576)
