"""The cases, each in every reuse mode, eager and lazy, with nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from memx import sim
from memx.replay import replay, resolve_limits
from memx.trace import read

CASES = sorted((Path(__file__).parent / "data").glob("*.jsonl"))
PAGE = 64 << 10


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_holds(path: Path, reuse: str, mode: str) -> None:
    trace = read(path, page=PAGE)
    lazy = mode == "lazy"
    if trace.header.lazy not in (None, lazy):
        pytest.skip(f"the case says that it is not {mode}")
    if trace.header.reuse not in (None, reuse):
        pytest.skip(f"the case says that it is not for reuse={reuse}")
    limits = resolve_limits(trace, reuse=reuse, lazy=lazy)
    before = sim.usage()
    result = replay(trace, limits)
    assert result.failures == []
    assert (result.mismatches, result.races) == (0, 0)
    assert result.ok
    assert result.peak_reserved_bytes <= limits.device_limit
    assert result.peak_host_bytes <= limits.host_limit
    assert sim.usage() == before
