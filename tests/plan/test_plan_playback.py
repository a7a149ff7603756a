"""Plans at run time: places are served where they may be, and what departs from the plan is served by the pool."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx import _native
from memx.plan import SavedLayout, layout, read_buffers, read_layout, write_layout
from memx.plan.lifetimes import buffers_of
from memx.plan.order import AllocationOrder
from memx.plan.playback import play
from memx.replay import Limits, Result, replay
from memx.trace import events as ev

PAGE = 64 << 10
TRACE = Path(memx.__file__).parent / "data" / "resnet50_b32_sgd.jsonl.gz"
ROOM = Limits(16 << 20, 4 << 20, PAGE, "default", False)

pytestmark = pytest.mark.usefixtures("oracle")


def plan_of(events: list[ev.Event]) -> SavedLayout:
    """A plan of a program, without a file."""
    buffers = buffers_of(events, 512, str)
    found = layout(buffers)
    streams, steps = [], []
    for event in events:
        if isinstance(event, ev.Alloc):
            streams.append(event.stream)
        elif isinstance(event, ev.Step):
            steps.append(len(streams))
    order = AllocationOrder(tuple(streams), tuple(s for s in steps if s < len(streams)))
    return SavedLayout(buffers, found.offsets, found.height, None, "", order)


class Program:
    """Events; every buffer is written when it is made and read before it goes."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.count = 0

    def alloc(self, size: int, stream: int = 0) -> int:
        self.count += 1
        self.events.append(ev.Alloc(self.count, size, stream))
        self.events.append(ev.Kernel(writes=(ev.Operand(self.count),), stream=stream))
        return self.count

    def free(self, *names: int, stream: int = 0) -> None:
        for name in names:
            self.events.append(ev.Kernel(reads=(ev.Operand(name),), stream=stream))
            self.events.append(ev.Free(name))

    def step(self) -> None:
        self.events.append(ev.Step())

    def train(
        self, sizes: tuple[int, ...] = (5000, 70_000, 9000, 200_000), *, leave_out: int = -1, keep: int = -1
    ) -> None:
        """A step: allocations one after the other, each freed two later; one may be left out, or never freed."""
        self.step()
        held: list[int] = []
        for i, size in enumerate(sizes):
            if i != leave_out:
                held.append(self.alloc(size))
                if i == keep:
                    held.pop()
            if len(held) > 2:
                self.free(held.pop(0))
        self.free(*held)


def run(program: Program | list[ev.Event], plan: SavedLayout, limits: Limits = ROOM) -> Result:
    events = program.events if isinstance(program, Program) else program
    result = replay(events, limits, plan=plan)
    assert result.ok, result.failures
    assert result.plan is not None
    total = sum(isinstance(event, ev.Alloc) and event.size > 0 for event in events)
    assert result.plan["served"] + result.plan["departed"] + result.plan["blocked"] == total
    return result


def steps(count: int, **how: Any) -> Program:
    program = Program()
    for _ in range(count):
        program.train(**how)
    return program


def test_a_real_step_takes_what_was_planned_and_no_more(tmp_path: Path) -> None:
    scale = Fraction(1, 64)
    buffers, source = read_buffers(TRACE, scale=scale)
    found = layout(buffers)
    path = tmp_path / "plan.json"
    write_layout(path, buffers, found, source)
    trace = memx.trace.Trace(TRACE, PAGE, scale)
    limits = Limits(64 << 20, 0, PAGE, "default", False)
    result = replay(trace, limits, plan=path)
    assert result.ok, result.failures
    assert result.plan is not None
    assert (result.plan["departed"], result.plan["blocked"]) == (0, 0)
    assert result.plan["served"] == len(buffers)
    assert found.height == found.lower_bound
    assert result.peak_reserved_bytes == -(-found.height // PAGE) * PAGE
    assert read_layout(path).order == source.order


def test_a_repeated_step_is_served_whole_and_asks_the_driver_for_nothing() -> None:
    plan = plan_of(steps(2).events)
    program = steps(5)
    program.events.append(ev.Check("driver_calls.cuMemCreate", equals=0))
    program.events.append(ev.Check("driver_calls.cuMemMap", equals=0))
    program.events.append(ev.Check("driver_calls.cuMemUnmap", equals=0))
    result = run(program, plan)
    assert result.plan == {
        "served": 20,
        "departed": 0,
        "blocked": 0,
        "arena_bytes": -(-plan.height // PAGE) * PAGE,
    }
    assert result.peak_reserved_bytes == -(-plan.height // PAGE) * PAGE


def test_parameters_come_once_and_steps_repeat() -> None:
    def program(count: int) -> Program:
        made = Program()
        parameters = [made.alloc(n) for n in (100_000, 3000)]
        for _ in range(count):
            made.train()
        made.free(*parameters)
        return made

    plan = plan_of(program(2).events)
    result = run(program(6), plan)
    assert result.plan is not None
    assert result.plan["served"] == 2 + 6 * 4


def test_sizes_that_change_go_to_the_pool() -> None:
    program = steps(2)
    program.train(sizes=(6000, 71_000, 9500, 201_000))
    program.train()
    result = run(program, plan_of(steps(2).events))
    assert result.plan is not None
    assert (result.plan["served"], result.plan["departed"]) == (12, 4)


@pytest.mark.parametrize("missing", range(4))
def test_an_operation_that_is_missing_costs_itself_alone(missing: int) -> None:
    program = steps(2)
    program.train(leave_out=missing)
    program.train()
    result = run(program, plan_of(steps(2).events))
    assert result.plan is not None
    assert result.plan["departed"] == 0
    assert result.plan["served"] + result.plan["blocked"] == 15


@pytest.mark.parametrize("kept", range(4))
def test_a_free_that_is_left_out_blocks_its_place(kept: int) -> None:
    program = steps(2)
    program.train(keep=kept)
    program.train()
    program.train()
    result = run(program, plan_of(steps(2).events))
    assert result.plan is not None
    assert result.plan["departed"] == 0
    assert result.plan["blocked"] >= 2  # its own place, in both steps after


def test_several_sequence_lengths_lie_over_each_other() -> None:
    short, long = (4000, 30_000, 5000, 90_000), (4000, 60_000, 9000, 180_000, 7000)
    plans = [plan_of(steps(2, sizes=sizes).events) for sizes in (short, long)]
    program = Program()
    for sizes in (short, long, long, short, long, short, short):
        program.train(sizes=sizes)
    result = replay(program.events, ROOM, plan=plans)
    assert result.ok, result.failures
    assert result.plan is not None
    assert result.plan["departed"] == 0
    assert result.plan["blocked"] <= 5  # the plans change five times, each after a first allocation that they share
    assert result.plan["arena_bytes"] == -(-max(plan.height for plan in plans) // PAGE) * PAGE


def test_a_step_may_say_which_plan_it_follows() -> None:
    short, long = (4000, 30_000, 5000, 90_000), (4000, 60_000, 9000, 180_000, 7000)
    native = _native.Resource(0, 16 * PAGE, 0, page=PAGE)
    playing = play(native, [plan_of(steps(2, sizes=sizes).events) for sizes in (short, long)])
    for which in (0, 1, 1, 0, 1, 0, 0):
        playing.step(which)
        held: list[int] = []
        for size in (short, long)[which]:
            held.append(native.allocate(size))
            if len(held) > 2:
                native.free(held.pop(0))
        for address in held:
            native.free(address)
        native.check()
    assert playing.statistics()["served"] == 4 * 4 + 3 * 5
    with pytest.raises(memx.InvalidValueError, match="no plan 2 of 2"):
        playing.step(2)
    native.close()


def test_without_marks_a_step_is_found_by_its_sequence() -> None:
    program = [event for event in steps(6).events if not isinstance(event, ev.Step)]
    plan = plan_of(steps(1).events)
    result = run(program, plan)
    assert result.plan is not None
    assert result.plan["served"] == 24


def two_streams(ordered: bool) -> Program:
    """The first buffer's work on stream 1 may be running when the second, in its place, is made on stream 2."""
    program = Program()
    program.events += [ev.Stream(1, "nonblocking"), ev.Stream(2, "nonblocking")]
    a = program.alloc(50_000, 1)
    program.free(a, stream=1)
    if ordered:
        program.events.append(ev.Wait(2, 1))
    program.events.append(ev.Hold(1))
    b = program.alloc(50_000, 2)
    program.free(b, stream=2)
    return program


@pytest.mark.parametrize("ordered", [False, True])
def test_a_place_is_served_only_if_its_last_work_is_ordered_before(ordered: bool) -> None:
    plan = plan_of(two_streams(True).events)
    assert plan.height == 50_000  # the plan puts one over the other
    program = two_streams(ordered)
    hold = next(i for i, event in enumerate(program.events) if isinstance(event, ev.Hold))
    program.events.insert(0, program.events.pop(hold))
    program.events.insert(0, ev.Stream(1, "nonblocking"))
    program.events = [
        e for i, e in enumerate(program.events) if not (isinstance(e, ev.Stream) and i > 1 and e.stream == 1)
    ]
    result = run(program, plan)
    assert result.plan is not None
    assert result.plan["blocked"] == (0 if ordered else 1)


def test_an_arena_that_does_not_fit_is_refused_and_nothing_is_held() -> None:
    plan = plan_of(steps(2).events)
    native = _native.Resource(0, 2 * PAGE, 0, page=PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="the arena of the plans"):
        play(native, plan)
    native.check()
    native.free(native.allocate(2 * PAGE))
    native.close()


def test_plans_are_used_once_at_a_time_and_their_memory_comes_back() -> None:
    plan = plan_of(steps(2).events)
    native = _native.Resource(0, 8 * PAGE, 0, page=PAGE)
    playing = play(native, plan)
    held = native.statistics()["reserved_bytes.current"]
    with pytest.raises(memx.InvalidStateError, match="plans in use"):
        play(native, plan)
    a = native.allocate(5000)
    native.trim(0)
    assert native.statistics()["reserved_bytes.current"] == held  # the arena stays
    assert playing.statistics()["served"] == 1
    playing.close()
    native.check()
    native.free(a)
    native.trim(0)
    assert native.statistics()["reserved_bytes.current"] == 0
    big = native.allocate(8 * PAGE)
    native.free(big)
    native.check()
    native.close()


def test_a_lazy_resource_plays_no_plan() -> None:
    native = _native.Resource(0, 8 * PAGE, 8 * PAGE, lazy=True, page=PAGE)
    with pytest.raises(memx.InvalidStateError, match="lazy"):
        play(native, plan_of(steps(1).events))
    native.close()


@pytest.mark.parametrize("call", ["evict", "pause"])
def test_what_a_plan_placed_does_not_move(call: str) -> None:
    native = _native.Resource(0, 8 * PAGE, 8 * PAGE, page=PAGE)
    playing = play(native, plan_of(steps(1).events))
    tag = native.tag_id("weights")
    a = native.allocate(5000, tag=tag)
    assert playing.statistics()["served"] == 1
    with pytest.raises(memx.InvalidStateError, match="plan"):
        native.evict(a) if call == "evict" else native.pause(tag)
    native.free(a)
    native.check()
    native.close()


def test_a_damaged_order_is_refused(tmp_path: Path) -> None:
    buffers, source = read_buffers(TRACE)
    path = tmp_path / "plan.json"
    write_layout(path, buffers, layout(buffers), source)
    document = json.loads(path.read_text())
    document["order"]["streams"].pop()
    path.write_text(json.dumps(document))
    with pytest.raises(memx.PlanError, match="order of allocations"):
        read_layout(path)


sizes = st.sampled_from([512, 1000, 5000, 66_000, 70_000, 200_000])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_departs_nothing_is_overwritten(data: st.DataObject) -> None:
    planned = tuple(data.draw(st.lists(sizes, min_size=1, max_size=8)))
    program = steps(1, sizes=planned)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["same", "other", "missing", "kept", "twice"]))
        if kind == "other":
            program.train(sizes=tuple(data.draw(st.lists(sizes, max_size=8))))
        elif kind == "missing":
            program.train(sizes=planned, leave_out=data.draw(st.integers(0, len(planned) - 1)))
        elif kind == "kept":
            program.train(sizes=planned, keep=data.draw(st.integers(0, len(planned) - 1)))
        elif kind == "twice":
            held = program.alloc(planned[0])
            program.train(sizes=planned)
            program.free(held)
        else:
            program.train(sizes=planned)
    run(program, plan_of(steps(2, sizes=planned).events), Limits(64 << 20, 0, PAGE, "default", False))
