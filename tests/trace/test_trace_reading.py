"""What a reader makes of well-formed traces."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from memx.trace import events as ev
from memx.trace import read


def save(path: Path, *events: dict[str, Any], **header: Any) -> Path:
    lines = [{"memx_trace": 1, **header}, *events]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def test_header_sizes_follow_its_page(tmp_path: Path) -> None:
    path = save(tmp_path / "t.jsonl", page="64KiB", device_limit="3p", host_limit=0, name="n", lazy=True)
    trace = read(path)
    assert (trace.name, trace.page) == ("n", 65536)
    assert (trace.device_limit, trace.host_limit) == (3 * 65536, 0)
    assert trace.header.lazy is True
    assert trace.header.reuse is None


def test_another_page_changes_sizes_in_pages_alone(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": 1, "size": "2p"},
        {"op": "alloc", "id": 2, "size": "1MiB"},
        page="2MiB",
        device_limit="4p",
    )
    trace = read(path, page=4096)
    assert trace.device_limit == 16384
    assert [event.size for event in trace if isinstance(event, ev.Alloc)] == [8192, 1 << 20]


def test_defaults(tmp_path: Path) -> None:
    path = save(tmp_path / "some.name.jsonl", {"op": "alloc", "id": "a", "size": 7}, {"op": "free", "id": "a"})
    trace = read(path)
    assert (trace.name, trace.page) == ("some", 2 << 20)
    assert list(trace) == [
        ev.Alloc("a", 7, stream=0, align=0, tag=None, host_ok=True, expect="ok"),
        ev.Free("a", stream=None, expect="ok"),
    ]
    assert [event.line for event in trace] == [2, 3]


def test_unknown_fields_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('\n{"memx_trace": 1, "colour": "red"}\n\n{"op": "trim", "why": [1]}\n \n{"op": "step"}')
    assert list(read(path)) == [ev.Trim(), ev.Step()]
    assert [event.line for event in read(path)] == [4, 6]


def test_sizes_are_passed_on_as_they_are(tmp_path: Path) -> None:
    sizes = [-1, 0, 1 << 63, (1 << 64) - 1, 10**30]
    path = save(tmp_path / "t.jsonl", *({"op": "alloc", "id": n, "size": n} for n in sizes))
    assert [event.size for event in read(path) if isinstance(event, ev.Alloc)] == sizes


def test_an_id_is_new_after_its_free_or_failure(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": "a", "size": 1},
        {"op": "free", "id": "a"},
        {"op": "free", "id": "a", "expect": "invalid"},
        {"op": "alloc", "id": "a", "size": 1 << 60, "expect": "oom"},
        {"op": "kernel", "writes": ["a"]},
        {"op": "free", "id": "a"},
        {"op": "alloc", "id": "a", "size": 1},
    )
    assert len(list(read(path))) == 7


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        (["a", "b"], 400),
        (["a", "a"], 100),
        ([{"id": "a", "offset": 10, "bytes": 20}, {"id": "a", "offset": 20, "bytes": 20}], 30),
        ([{"id": "a", "offset": 10}, {"id": "a", "bytes": 20}], 100),
        ([{"id": "a", "bytes": 1000}], 100),
    ],
)
def test_largest_operation_counts_each_byte_once(tmp_path: Path, operands: list[Any], expected: int) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": "a", "size": 100},
        {"op": "alloc", "id": "b", "size": 300},
        {"op": "kernel", "reads": operands, "writes": operands[:1]},
    )
    assert read(path).summary().largest_operation_bytes == expected


def test_peak_live_bytes(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": 1, "size": 10},
        {"op": "alloc", "id": 2, "size": 20},
        {"op": "alloc", "id": 3, "size": 1 << 50, "expect": "oom"},
        {"op": "free", "id": 1},
        {"op": "alloc", "id": 4, "size": 5},
        {"op": "alloc", "id": 1, "size": 6},
    )
    trace = read(path)
    assert trace.peak_live_bytes() == 31
    assert trace.summary().buffers == 4
    assert trace.summary().events == 6


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    def peak_of_reading(count: int) -> int:
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            file.write('{"memx_trace": 1}\n')
            for i in range(count):
                file.write(f'{{"op":"alloc","id":"buffer-{i}","size":1}}\n{{"op":"free","id":"buffer-{i}"}}\n')
        trace = read(path)
        tracemalloc.start()
        assert sum(1 for _ in trace) == 2 * count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    small, large = peak_of_reading(2_000), peak_of_reading(40_000)
    assert large < small + 100_000


@pytest.mark.slow
def test_a_million_events_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "million.jsonl"
    with path.open("w") as file:
        file.write('{"memx_trace": 1}\n')
        for i in range(500_000):
            file.write(f'{{"op":"alloc","id":{i},"size":1}}\n{{"op":"free","id":{i}}}\n')
    trace = read(path)
    tracemalloc.start()
    summary = trace.summary()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (summary.events, summary.peak_live_bytes) == (1_000_000, 1)
    assert peak < 1_000_000
