"""Lifetimes of trace buffers: one stream by the order of events, several by what orders them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memx.errors import TraceError
from memx.plan import Buffers, layout, read_buffers


def problem(tmp_path: Path, *events: dict[str, Any], alignment: int | None = None) -> Buffers:
    path = tmp_path / "trace.jsonl"
    lines = [{"memx_trace": 1, "page": "2MiB"}, *events]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_buffers(path, alignment)[0]


def alloc(name: str | int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"op": "alloc", "id": name, "size": size, **more}


def free(name: str | int, **more: Any) -> dict[str, Any]:
    return {"op": "free", "id": name, **more}


def spans(buffers: Buffers) -> list[tuple[str | int, int, int]]:
    return [(b.id, b.lower, b.upper) for b in buffers]


def test_from_allocation_to_free_or_to_the_end(tmp_path: Path) -> None:
    got = problem(tmp_path, alloc("a"), alloc("b", 7), free("a"), alloc("a", 100), {"op": "step"})
    assert spans(got) == [("a", 0, 2), ("b", 1, 5), ("a", 3, 5)]
    assert got.size.tolist() == [512, 7, 100]


def test_alignment_is_512_unless_more_is_asked(tmp_path: Path) -> None:
    events = (alloc("a", align=4096), alloc("b"))
    assert problem(tmp_path, *events).alignment.tolist() == [4096, 512]
    assert problem(tmp_path, *events, alignment=1).alignment.tolist() == [4096, 1]


def test_allocations_that_fail_take_up_nothing(tmp_path: Path) -> None:
    got = problem(
        tmp_path,
        alloc("huge", 1 << 70, expect="oom"),
        alloc("bad", -1, expect="invalid"),
        free("huge", expect="any"),
        alloc("a", 0),
    )
    assert spans(got) == [("a", 3, 4)]


@pytest.mark.parametrize("size", [-1, 1 << 63])
def test_sizes_that_no_layout_can_hold_are_refused_with_the_line(tmp_path: Path, size: int) -> None:
    with pytest.raises((TraceError, ValueError), match=r"trace\.jsonl:3: .*'b'"):
        problem(tmp_path, alloc("a"), alloc("b", size))


def kernel(stream: int, *reads: str) -> dict[str, Any]:
    return {"op": "kernel", "stream": stream, "reads": list(reads)}


def wait(stream: int, on: int) -> dict[str, Any]:
    return {"op": "wait", "stream": stream, "on": on}


def test_another_stream_may_not_take_it_before_it_waits(tmp_path: Path) -> None:
    """a is freed on stream 1 at 1; stream 2 allocates at 2, unordered, and at 4, ordered."""
    got = problem(tmp_path, alloc("a", stream=1), free("a"), alloc("b", stream=2), wait(2, 1), alloc("c", stream=2))
    assert spans(got)[0] == ("a", 0, 3)


def test_its_own_stream_may_take_it_at_once(tmp_path: Path) -> None:
    got = problem(tmp_path, alloc("x", stream=2), alloc("a", stream=1), free("a"), alloc("b", stream=1))
    assert spans(got)[1] == ("a", 1, 2)


def test_a_wait_from_before_the_free_orders_nothing(tmp_path: Path) -> None:
    got = problem(tmp_path, alloc("a", stream=1), wait(2, 1), free("a"), alloc("b", stream=2))
    assert spans(got)[0] == ("a", 0, 4)


def test_order_is_passed_on(tmp_path: Path) -> None:
    got = problem(tmp_path, alloc("a", stream=1), free("a"), wait(2, 1), wait(3, 2), alloc("b", stream=3))
    assert spans(got)[0] == ("a", 0, 1)


def test_a_use_elsewhere_outlives_the_free(tmp_path: Path) -> None:
    """Stream 1 frees at 3 what a kernel on stream 2 reads, unordered: not even stream 1 may reuse it."""
    got = problem(
        tmp_path,
        alloc("a", stream=1),
        wait(2, 1),
        kernel(2, "a"),
        free("a"),
        alloc("b", stream=1),
        wait(1, 2),
        alloc("c", stream=1),
    )
    assert spans(got)[0] == ("a", 0, 5)


def test_a_recorded_stream_counts_until_the_free(tmp_path: Path) -> None:
    got = problem(
        tmp_path,
        alloc("a", stream=1),
        {"op": "record_stream", "id": "a", "stream": 2},
        wait(1, 2),
        kernel(2),
        free("a"),
        alloc("b", stream=1),
        {"op": "sync"},
        alloc("c", stream=1),
    )
    assert spans(got)[0] == ("a", 0, 6)


@pytest.mark.parametrize(("sync", "upper"), [({}, 1), ({"stream": 1}, 1), ({"stream": 3}, 4)])
def test_the_host_waits(tmp_path: Path, sync: dict[str, int], upper: int) -> None:
    got = problem(tmp_path, alloc("a", stream=1), free("a"), {"op": "sync", **sync}, alloc("b", stream=2))
    assert spans(got)[0] == ("a", 0, upper)


def test_what_one_thread_waited_for_another_did_not(tmp_path: Path) -> None:
    got = problem(
        tmp_path,
        alloc("a", stream=1),
        free("a"),
        {"op": "sync"},
        {"op": "thread", "thread": "t"},
        alloc("b", stream=2),
    )
    assert spans(got)[0] == ("a", 0, 5)


def test_a_per_thread_stream_is_another_one_in_each_thread(tmp_path: Path) -> None:
    got = problem(
        tmp_path,
        {"op": "stream", "stream": 2, "kind": "per_thread"},
        alloc("a", stream=2),
        free("a"),
        {"op": "thread", "thread": "t"},
        alloc("b", stream=2),
    )
    assert spans(got)[0] == ("a", 1, 5)


def test_unordered_streams_get_different_memory(tmp_path: Path) -> None:
    got = problem(tmp_path, alloc("a", stream=1), free("a"), alloc("b", stream=2), free("b"))
    result = layout(got)
    assert sorted(result.offsets.tolist()) == [0, 512]
