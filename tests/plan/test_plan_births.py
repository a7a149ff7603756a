"""Which allocations are born on the host."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx.plan import plan_births
from memx.trace import events as ev

MIB = 1 << 20


def programs() -> st.SearchStrategy[list[ev.Event]]:
    @st.composite
    def build(draw: st.DrawFn) -> list[ev.Event]:
        events: list[ev.Event] = []
        live: list[int] = []
        for name in range(draw(st.integers(1, 8))):
            events.append(ev.Alloc(name, draw(st.integers(1, 6)) * 512))
            live.append(name)
            for _ in range(draw(st.integers(0, 2))):
                operands = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True))
                events.append(ev.Kernel(reads=tuple(map(ev.Operand, operands))))
            while live and draw(st.booleans()):
                events.append(ev.Free(live.pop(draw(st.integers(0, len(live) - 1)))))
        return events

    return build()


def replayed(events: list[ev.Event], on_host: tuple[bool, ...]) -> tuple[int, int]:
    """The most that is alive on the device, and the bytes that cross: by doing it."""
    place = dict(enumerate(on_host))
    sizes: dict[int, int] = {}
    held = peak = crossing = 0
    for event in events:
        if isinstance(event, ev.Alloc):
            sizes[event.id] = event.size
            held += 0 if place[event.id] else event.size
            peak = max(peak, held)
        elif isinstance(event, ev.Free):
            held -= 0 if place[event.id] else sizes[event.id]
        else:
            crossing += sum(sizes[o.id] for o in event.reads if place[o.id])
    return peak, crossing


@settings(max_examples=150, deadline=None)
@given(events=programs(), limit=st.integers(0, 12))
def test_beside_all_choices(events: list[ev.Event], limit: int) -> None:
    births = plan_births(events, limit * 512)
    count = sum(isinstance(event, ev.Alloc) for event in events)
    peak, crossing = replayed(events, tuple(births.on_host.tolist()))
    assert (peak, crossing) == (births.device_bytes, births.crossing_bytes)
    assert peak <= limit * 512
    every = [replayed(events, choice) for choice in itertools.product([False, True], repeat=count)]
    best = min(moved for held, moved in every if held <= limit * 512)
    assert births.lower_bound <= best <= crossing


def test_nothing_is_on_the_host_when_all_fits() -> None:
    events = [ev.Alloc(i, MIB) for i in range(3)] + [ev.Kernel(reads=(ev.Operand(0),))]
    births = plan_births(events, 3 * MIB)
    assert not births.on_host.any()
    assert births.crossing_bytes == births.lower_bound == 0


def test_large_seldom_used_ones_go_first() -> None:
    events: list[ev.Event] = [ev.Alloc("used", MIB), ev.Alloc("idle", 4 * MIB), ev.Alloc("other", MIB)]
    events += [ev.Kernel(reads=(ev.Operand("used"), ev.Operand("other")))] * 10
    births = plan_births(events, 2 * MIB)
    assert births.on_host.tolist() == [False, True, False]


def test_what_must_be_on_the_device_and_does_not_fit_is_refused() -> None:
    with pytest.raises(memx.PlanError, match="device limit"):
        plan_births([ev.Alloc(0, MIB, host_ok=False)], 1)


@pytest.mark.parametrize("fraction", [0.8, 0.6])
def test_a_real_step_is_near_the_bound(fraction: float) -> None:
    trace = memx.trace.Trace(Path(memx.__file__).parent / "data/resnet50_b32_sgd.jsonl.gz")
    limit = int(fraction * trace.peak_live_bytes())
    births = plan_births(trace, limit)
    assert births.device_bytes <= limit
    assert 0 < births.lower_bound <= births.crossing_bytes <= 1.1 * births.lower_bound
    assert np.count_nonzero(births.on_host)
