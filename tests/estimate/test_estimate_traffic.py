"""Operations in a trace of the allocations, and what of it crosses the bus, against arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memx.estimate.events import events_of
from memx.estimate.history import History
from memx.estimate.raw import Raw
from memx.estimate.traffic import Traffic, traffic
from memx.trace import events as ev

PAGE = 2 << 20


def entry(action: str, address: int, size: int, mark: object = "") -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": [], "user_metadata": str(mark)}


def taken(raw: Raw, entries: list[dict[str, Any]]) -> list[ev.Event]:
    raw.take(entries, Path("/nowhere"))
    back = Raw.from_json(raw.as_json())
    return list(events_of(back, History.of(back)))


def test_operations_stand_after_what_they_allocate_and_before_what_follows() -> None:
    raw = Raw(
        operations=[(1, "ones", [], [100], 0, 7), (2, "sum", [100], [200], 0, 7), (3, "neg_", [200], [200], 0, 7)]
    )
    events = taken(
        raw,
        [
            entry("alloc", 100, 512, 1),
            entry("alloc", 200, 4, 2),
            entry("alloc", 300, 1024, 2),  # used inside, and again
            entry("free_requested", 300, 1024, 2),
            entry("free_completed", 300, 1024, 2),
            entry("free_requested", 100, 512, -1),  # of a thread that has not seen what came since
            entry("free_requested", 200, 4, -3),
        ],
    )
    said = [(e.op, getattr(e, "name", None) or e.id) for e in events if not isinstance(e, ev.Step)]  # type: ignore[attr-defined]
    assert said == [
        ("alloc", 0),
        ("kernel", "ones"),
        ("alloc", 1),
        ("alloc", 2),
        ("kernel", "sum"),
        ("free", 2),
        ("kernel", "sum"),
        ("free", 0),
        ("kernel", "neg_"),
        ("free", 1),
    ]
    inside, whole = (e for e in events if isinstance(e, ev.Kernel) and e.name == "sum")
    assert [o.id for o in inside.reads] == [0]
    assert [o.id for o in inside.writes] == [1, 2]
    assert [o.id for o in whole.writes] == [1]


def test_cublas_uses_the_workspace_of_its_thread() -> None:
    raw = Raw(
        operations=[
            (n, name, [], [10 + n], 0, thread) for n, name, thread in ((1, "mm", 7), (2, "mm", 8), (3, "bmm", 7))
        ],
        marks=[(5, 0, "clearing", {}), (5, 2, "cleared", {})],
    )
    entries = [entry("alloc", 11, 512, 1), entry("alloc", 50, 4096, 1), entry("alloc", 12, 512, 2)]
    entries += [entry("alloc", 60, 4096, 2), entry("alloc", 13, 512, 3)]
    entries += [entry("free_requested", address, 4096, -3) for address in (50, 60)]
    kernels = [e for e in taken(raw, entries) if isinstance(e, ev.Kernel)]
    assert [[o.id for o in e.writes] for e in kernels] == [[0, 1], [2, 3], [4, 1]]


def rounds(count: int, read: str, buffers: int = 5) -> list[ev.Event]:
    """Buffers of a page each, used in turn round after round."""
    events: list[ev.Event] = []
    for number in range(buffers):
        events += [ev.Alloc(number, PAGE), ev.Kernel((), (ev.Operand(number),))]
    for step in range(count):
        for number in range(buffers):
            operand = (ev.Operand(number),)
            events.append(ev.Kernel(operand, operand if read == "rw" else ()))
        events.append(ev.Step(f"step {step + 1}"))
    return events


def test_five_pages_in_turn_on_a_device_of_four() -> None:
    found = traffic(rounds(4, "r"), 4 * PAGE)
    assert (found.step, found.largest_operation_bytes) == (3, PAGE)
    # One of them lies on the host and is read once a step.
    assert found.placed_bytes == found.placed_told_bytes == PAGE
    # Belady's rule brings one in for every four accesses; nothing must go out twice.
    assert found.moved_told_bytes in (PAGE, 2 * PAGE)
    assert found.bound_bytes == PAGE * 5 // 4
    assert found.moved_bytes is not None
    assert found.bound_bytes <= found.moved_bytes <= 5 * 2 * PAGE


def test_an_update_reads_and_writes_over_the_bus() -> None:
    found = traffic(rounds(3, "rw"), 4 * PAGE)
    assert found.step == 2
    assert found.placed_bytes == 2 * PAGE


def test_told_placement_prefers_what_is_seldom_used() -> None:
    """The first buffer is used ten times a step, the last once; only one fits."""
    events: list[ev.Event] = [ev.Alloc(0, PAGE), ev.Alloc(1, PAGE)]
    for _ in range(3):
        events += [*[ev.Kernel((ev.Operand(1),))] * 10, ev.Kernel((ev.Operand(0),)), ev.Step("step")]
    found = traffic(events, PAGE)
    assert (found.placed_bytes, found.placed_told_bytes) == (10 * PAGE, PAGE)


def test_an_operation_larger_than_the_device() -> None:
    events: list[ev.Event] = [ev.Alloc(0, PAGE), ev.Alloc(1, PAGE)]
    events += [ev.Kernel((ev.Operand(0), ev.Operand(1)))]
    found = traffic(events, PAGE)
    assert found == Traffic(None, 2 * PAGE, PAGE, PAGE, None, None, None)


@pytest.mark.parametrize("count", [0, 1])
def test_without_two_steps_it_is_the_whole_run(count: int) -> None:
    found = traffic(rounds(count, "r"), 4 * PAGE)
    assert found.step is None
