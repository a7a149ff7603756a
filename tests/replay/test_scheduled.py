"""Schedules run by the store: what they claim is what moves, and contents stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cuda.bindings import driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memx
from memx.cli import cli
from memx.errors import InvalidValueError, PlanError
from memx.plan import read_migration, segments
from memx.plan.inputs import Source
from memx.plan.migration import Move, check_moves
from memx.plan.migration.files import SavedSchedule, read_schedule, write_schedule
from memx.replay import Limits, Result, replay
from memx.trace import Trace
from memx.trace import events as ev

PAGE = 64 << 10  # of the device of all tests
DATA = Path(__file__).parent.parent / "plan" / "data"
NAMES = [path.stem for path in sorted((DATA / "migration").glob("*.json"))]
MODES = ("exclusive", "packed", "unsegmented")

pytestmark = pytest.mark.usefixtures("oracle")


def limits(capacity: int) -> Limits:
    return Limits(capacity, 1 << 30, PAGE, "default", True)


def schedule_of(events: list[ev.Event], pages: int, mode: str, folder: Path) -> SavedSchedule | None:
    plan = segments(read_migration(events, PAGE), pages * PAGE, mode=mode)
    if not plan.feasible:
        return None
    write_schedule(folder / "plan.json", plan, Source("a", "b", "trace"), PAGE)
    return read_schedule(folder / "plan.json")


def moved(result: Result) -> tuple[int, int]:
    assert result.failures == []
    assert result.ok
    assert (result.mismatches, result.races) == (0, 0)
    return result.migrated_in_bytes, result.migrated_out_bytes


def in_pages(name: str) -> list[ev.Event]:
    """A shared problem with a page for each of its bytes."""
    events = list(Trace(DATA / "migration" / f"{name}.jsonl"))
    for event in events:
        if isinstance(event, ev.Alloc):
            event.size *= PAGE
    return events


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_claimed_bytes_move(name: str, mode: str, tmp_path: Path) -> None:
    known = json.loads((DATA / "migration" / f"{name}.json").read_text())
    events = in_pages(name)
    schedule = schedule_of(events, known["capacity"], mode, tmp_path)
    if known["optimum"][mode] is None:
        assert schedule is None
        return
    assert schedule is not None
    result = replay(events, limits(schedule.capacity), plan=schedule)
    assert moved(result) == (schedule.moved.in_bytes, schedule.moved.out_bytes)
    assert sum(moved(result)) == known["optimum"][mode]["bytes"] * PAGE
    assert result.peak_reserved_bytes <= schedule.capacity


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[ev.Event], int]:
    """Objects born and freed along the way, ids used again, operations on them, and a capacity in pages."""
    events: list[ev.Event] = []
    live: dict[int, int] = {}
    least = 1
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["alloc", "free", "kernel", "kernel", "kernel"]))
        if kind == "alloc" or not live:
            name = draw(st.integers(0, 6))
            if name not in live:
                size = draw(st.integers(1, 9 * PAGE))
                live[name] = -(-size // PAGE)
                events.append(ev.Alloc(name, size, tag=draw(st.sampled_from([None, "keep"]))))
        elif kind == "free":
            name = draw(st.sampled_from(sorted(live)))
            del live[name]
            events.append(ev.Free(name))
        else:
            some = st.lists(st.sampled_from(sorted(live)), max_size=3, unique=True)
            reads, writes = draw(some), draw(some)
            least = max(least, sum(live[o] for o in {*reads, *writes}))
            events.append(ev.Kernel(tuple(map(ev.Operand, reads)), tuple(map(ev.Operand, writes))))
    return events, draw(st.integers(least, least + 20))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs(), st.sampled_from(MODES))
def test_so_they_do_in_any_program(tmp_path: Path, program: tuple[list[ev.Event], int], mode: str) -> None:
    events, pages = program
    schedule = schedule_of(events, pages, mode, tmp_path)
    if schedule is not None:
        result = replay(events, limits(schedule.capacity), plan=schedule)
        assert moved(result) == (schedule.moved.in_bytes, schedule.moved.out_bytes)


def test_an_object_goes_alone_though_it_lies_where_a_wide_one_was() -> None:
    """Handles of several pages, mapped for a buffer that is freed, would be shared by those that have its place."""
    events: list[ev.Event] = [
        ev.Alloc("a", 8 * PAGE),
        ev.Kernel(writes=(ev.Operand("a"),)),
        ev.Free("a"),
        ev.Alloc("b", 5 * PAGE),
        ev.Alloc("c", 3 * PAGE),
        ev.Kernel(writes=(ev.Operand("b"), ev.Operand("c"))),
        ev.Kernel(reads=(ev.Operand("c"),)),
        ev.Kernel(reads=(ev.Operand("b"),)),
    ]
    comes, goes = [(0, 0, "make"), (1, 1, "make"), (1, 2, "make"), (3, 1, "in")], [(1, 0, "drop"), (2, 1, "out")]
    rows = sorted([*comes, *goes, (4, 1, "drop"), (4, 2, "drop")], key=lambda row: (row[0], row[2] in ("in", "make")))
    moves = [Move(*row) for row in rows]
    problem = read_migration(events)
    schedule = SavedSchedule(problem, moves, check_moves(problem, moves, 16 * PAGE), 16 * PAGE, 1, "")
    assert moved(replay(events, limits(16 * PAGE), plan=schedule)) == (5 * PAGE, 5 * PAGE)


def test_copies_go_on_while_earlier_work_is_held_up(tmp_path: Path) -> None:
    """What the second operation needs has come while the first one is still to run."""
    start: list[ev.Event] = [ev.Alloc("a", PAGE), ev.Alloc("b", PAGE)]
    work: list[ev.Event] = [ev.Kernel(writes=(ev.Operand("a"),)), ev.Kernel(reads=(ev.Operand("b"),))]
    schedule = schedule_of([*start, *work], 2, "unsegmented", tmp_path)
    assert schedule is not None
    pending = []

    def events() -> Iterator[ev.Event]:
        yield from [*start, ev.Hold(0), *work]
        yield ev.Check("migrated_in_bytes", equals=PAGE)
        pending.append(driver.cuStreamQuery(0)[0])
        yield ev.Release(0)

    assert moved(replay(events(), limits(2 * PAGE), plan=schedule)) == (PAGE, 0)
    assert pending == [driver.CUresult.CUDA_ERROR_NOT_READY]


def test_copies_are_listed_as_early_as_there_is_room(tmp_path: Path) -> None:
    """Object d comes right after a goes, two operations before the one that reads it."""
    names = "abcd"
    events: list[ev.Event] = [ev.Alloc(name, PAGE) for name in names]
    events += [ev.Kernel(reads=tuple(map(ev.Operand, step))) for step in ("ab", "bc", "bc", "bd")]
    schedule = schedule_of(events, 3, "unsegmented", tmp_path)
    assert schedule is not None
    comes = {names[move.object]: move.step for move in schedule.moves if move.kind == "in"}
    assert comes == {"a": 0, "b": 0, "c": 0, "d": 1}


@pytest.fixture
def simple(tmp_path: Path) -> tuple[list[ev.Event], SavedSchedule]:
    events: list[ev.Event] = [ev.Alloc("a", PAGE), ev.Kernel(reads=(ev.Operand("a"),))]
    schedule = schedule_of(events, 1, "packed", tmp_path)
    assert schedule is not None
    return events, schedule


def test_another_trace_is_refused(simple: tuple[list[ev.Event], SavedSchedule]) -> None:
    events, schedule = simple
    for other in ([ev.Alloc("a", 2 * PAGE), events[1]], [*events, events[1]], events[:1]):
        with pytest.raises(PlanError, match="schedule"):
            replay(other, limits(PAGE), plan=schedule)


def test_eager_memory_is_refused(simple: tuple[list[ev.Event], SavedSchedule]) -> None:
    with pytest.raises(InvalidValueError, match="lazy"):
        replay(simple[0], Limits(PAGE, 1 << 30, PAGE, "default", False), plan=simple[1])


def memx_program(*arguments: object) -> dict[str, Any]:
    """What a command prints as JSON; in a process of its own, whose simulated device has pages of another size."""
    package = Path(memx.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "memx", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=package,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_command_line(tmp_path: Path) -> None:
    trace, plan = DATA / "unet_b4_256_sgd.jsonl.gz", tmp_path / "plan.json"
    sizes = ("--scale", "1/64", "--round-to", "4KiB", "--capacity", "16MiB")
    made = memx_program("segments", trace, *sizes, "--mode", "packed", "--time-limit", 1, "-o", plan)
    ran = memx_program("replay", trace, "--scale", "1/64", "--page", "4KiB", "--plan", plan, "--simulate")
    (result,) = ran["results"]
    assert result["migrated_in_bytes"] + result["migrated_out_bytes"] == made["migrated_bytes"]
    assert (result["mismatches"], result["races"]) == (0, 0)
    assert result["peak_reserved_bytes"] <= 16 << 20


@pytest.mark.parametrize(
    ("arguments", "message"), [(("--eager",), "eager"), (("--allocator", "torch-native"), "only memx")]
)
def test_what_a_schedule_cannot_be_run_with(
    simple: tuple[list[ev.Event], SavedSchedule], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"memx_trace": 1, "page": "64KiB"}\n')
    result = CliRunner().invoke(cli, ["replay", str(trace), "--plan", str(tmp_path / "plan.json"), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_sizes_that_are_no_whole_pages_are_refused(tmp_path: Path) -> None:
    events: list[ev.Event] = [ev.Alloc("a", PAGE + 1), ev.Kernel(reads=(ev.Operand("a"),))]
    plan = segments(read_migration(events), 2 * PAGE)
    write_schedule(tmp_path / "plan.json", plan, Source("a", "b", "trace"))
    with pytest.raises(PlanError, match=f"--round-to {PAGE}"):
        replay(events, limits(2 * PAGE), plan=tmp_path / "plan.json")
