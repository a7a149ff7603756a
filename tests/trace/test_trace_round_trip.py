"""What is written is what is read, whatever the compression."""

from __future__ import annotations

import gzip
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_strategies import headers, traces

from memx.trace import Header, read, write
from memx.trace import events as ev

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
@quick
@given(header=headers, events=traces)
def test_written_events_are_read_back(tmp_path: Path, suffix: str, header: Header, events: list[ev.Event]) -> None:
    path = tmp_path / f"trace{suffix}"
    write(path, header, events)
    trace = read(path)
    assert trace.header == header
    assert list(trace) == events
    assert list(trace) == events  # a trace can be read again


@quick
@given(header=headers, events=traces, numerator=st.integers(1, 64), denominator=st.integers(1, 64))
def test_scaling_rounds_every_size_up_to_512(
    tmp_path: Path, header: Header, events: list[ev.Event], numerator: int, denominator: int
) -> None:
    path = tmp_path / "trace.jsonl"
    write(path, header, events)
    factor = Fraction(numerator, denominator)
    for before, after in zip(events, read(path).scaled(factor), strict=True):
        assert type(before) is type(after)
        if isinstance(before, ev.Alloc) and isinstance(after, ev.Alloc):
            if 0 <= before.size < 1 << 63:
                assert after.size % 512 == 0
                assert before.size * factor <= after.size < before.size * factor + 512
            else:
                assert after.size == before.size


@quick
@given(
    cuts=st.lists(st.integers(0, 1 << 20), min_size=2, max_size=8, unique=True).map(sorted),
    denominator=st.integers(1, 1000),
)
def test_scaled_parts_stay_inside_and_apart(tmp_path: Path, cuts: list[int], denominator: int) -> None:
    parts = tuple(ev.Operand("a", start, end - start) for start, end in pairwise(cuts))
    path = tmp_path / "trace.jsonl"
    write(path, Header("parts"), [ev.Alloc("a", cuts[-1]), ev.Kernel(parts)])
    alloc, kernel = read(path).scaled(Fraction(1, denominator))
    assert isinstance(alloc, ev.Alloc)
    assert isinstance(kernel, ev.Kernel)
    reached = 0
    for part in kernel.reads:
        assert part.bytes is not None
        assert part.offset >= reached
        reached = part.offset + part.bytes
    assert reached <= alloc.size


def test_gzip_output_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write(tmp_path / name, Header("same"), [ev.Alloc(1, 2)])
    first, second = ((tmp_path / name).read_bytes() for name in ("a.jsonl.gz", "b.jsonl.gz"))
    assert first == second
    assert gzip.decompress(first).count(b"\n") == 2
