"""Real training steps with real contents on half of the memory that they need.

The traces lie beside the checkout; one of them ships with memx.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from memx.demo import DEMO_TRACE
from memx.demo.spread import spread
from memx.replay import Limits, replay
from memx.trace import Trace

PAGE = 64 << 10
SCALE = Fraction(1, 64)
BESIDE = Path(__file__).parents[3] / "shared" / "data" / "traces"
TRACES = sorted(BESIDE.glob("*.jsonl.gz")) or [DEMO_TRACE]


def half_of(trace: Trace) -> int:
    summary = trace.summary()
    needed = max(summary.peak_live_bytes // 2, summary.largest_operation_bytes)
    return -(-needed // PAGE) * PAGE


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_a_step_survives_on_half_of_its_memory(path: Path, lazy: bool) -> None:
    trace = Trace(path, PAGE, SCALE)
    limit = half_of(trace)
    result = replay(trace, Limits(limit, 1 << 30, PAGE, "default", lazy))
    assert result.failures == []
    assert (result.mismatches, result.races) == (0, 0)
    assert limit * 0.9 < result.peak_reserved_bytes <= limit
    assert (result.migrated_out_bytes > 0) is lazy


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
def test_a_step_on_streams_is_never_out_of_order(reuse: str, lazy: bool) -> None:
    trace = Trace(DEMO_TRACE, PAGE, SCALE)
    result = replay(spread(trace, 3), Limits(half_of(trace), 1 << 30, PAGE, reuse, lazy))
    assert result.failures == []
    assert (result.mismatches, result.races) == (0, 0)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_with_room_little_more_than_the_live_bytes_is_reserved(path: Path) -> None:
    trace = Trace(path, PAGE, SCALE)
    peak = trace.peak_live_bytes()
    result = replay(trace, Limits(2 * peak, 0, PAGE, "default", False))
    assert result.ok
    # Small buffers share pages, and freed ones leave holes: far less than an allocator with fixed segments.
    assert peak <= result.peak_reserved_bytes <= 1.05 * peak
