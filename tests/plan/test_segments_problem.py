"""The migration problem of a trace, and the account of moves."""

from __future__ import annotations

import json
from pathlib import Path

import migration_problems as small
import pytest
from hypothesis import given, settings

from memx.errors import PlanError, TraceError
from memx.plan import Migration, read_migration, segments
from memx.plan.migration import Move, check_moves
from memx.trace import Trace
from memx.trace import events as ev

A, B = "a", "b"


def kernel(reads: str = "", writes: str = "") -> ev.Kernel:
    return ev.Kernel(tuple(map(ev.Operand, reads)), tuple(map(ev.Operand, writes)))


def table(problem: Migration) -> list[tuple[object, int, int]]:
    rows = zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), strict=True)
    return [(problem.ids[o], t, mode) for o, t, mode in rows]


def test_an_object_read_and_written_in_one_step_is_accessed_once() -> None:
    problem = read_migration([ev.Alloc(A, 4), kernel("a", "a"), kernel("aa"), kernel("", "aa")])
    assert table(problem) == [(A, 0, 3), (A, 1, 1), (A, 2, 2)]


def test_an_id_used_again_is_another_object() -> None:
    problem = read_migration([ev.Alloc(A, 4), kernel("", "a"), ev.Free(A), ev.Alloc(A, 7), kernel("a")])
    assert list(problem.ids) == ["a", "a#2"]
    assert problem.size.tolist() == [4, 7]
    assert table(problem) == [("a", 0, 2), ("a#2", 1, 1)]


def test_every_kernel_is_a_step_even_one_without_operands() -> None:
    problem = read_migration([kernel(), ev.Alloc(A, 4), kernel("a"), kernel()])
    assert len(problem.steps) == 3
    assert table(problem) == [(A, 1, 1)]


def test_what_is_expected_to_fail_takes_no_part() -> None:
    failing = ev.Kernel((ev.Operand(A),), expect="oom")
    problem = read_migration([ev.Alloc(A, 4), ev.Alloc(B, 1 << 60, expect="oom"), failing, kernel("ab")])
    assert list(problem.ids) == [A]
    assert table(problem) == [(A, 0, 1)]


def test_tags_that_keep_an_object() -> None:
    events = [ev.Alloc(name, 1, tag=tag) for name, tag in (("a", "keep"), ("b", "persistent"), ("c", "weights"))]
    assert read_migration(events).keep.tolist() == [True, True, False]


def test_a_part_written_keeps_the_rest_unless_there_is_none() -> None:
    part = ev.Kernel(writes=(ev.Operand(A, 0, 2),))
    halves = ev.Kernel(writes=(ev.Operand(A, 0, 2), ev.Operand(A, 2, 2)))
    problem = read_migration([ev.Alloc(A, 4), part, part, halves])
    assert table(problem) == [(A, 0, 2), (A, 1, 3), (A, 2, 2)]


def test_sizes_count_as_they_are_or_rounded_up() -> None:
    events = [ev.Alloc(A, 4097), ev.Alloc(B, 0)]
    assert read_migration(events).size.tolist() == [4097, 0]
    assert read_migration(events, 4096).size.tolist() == [8192, 0]


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_objects_without_bytes_or_accesses_need_nothing(mode: str) -> None:
    problem = Migration.of([4, 0, 100], [[(0, "w"), (1, "r")], [(1, "rw"), (0, "r")]])
    plan = segments(problem, 4, mode=mode)
    assert (plan.feasible, plan.migrated_bytes) == (True, 0)
    assert plan.homes.tolist()[1:] == [-1, -1]


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_a_trace_of_nothing(mode: str) -> None:
    plan = segments(Migration.of([], [[], []]), 0, mode=mode)
    assert (plan.feasible, plan.migrated_bytes, plan.lower_bound, plan.optimal) == (True, 0, 0, True)


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_a_step_larger_than_the_capacity_is_named(mode: str) -> None:
    plan = segments(Migration.of([4, 5], [[(0, "r")], [(0, "r"), (1, "w")]]), 8, mode=mode)
    assert (plan.feasible, plan.infeasible_step, plan.migrated_bytes) == (False, 1, None)
    assert "step 1 needs 9 bytes" in plan.reason


def test_a_step_with_more_objects_than_segments_is_named() -> None:
    plan = segments(Migration.of([4, 2, 1], [[(0, "r")], [(0, "r"), (1, "r"), (2, "r")]]), 7, segments=2)
    assert (plan.feasible, plan.infeasible_step) == (False, 1)


def test_packed_segments_serve_it_if_the_objects_fit_one() -> None:
    problem = Migration.of([4, 2, 1, 1], [[(0, "r")], [(1, "r"), (2, "r"), (3, "r")]])
    plan = segments(problem, 6, mode="packed")
    assert (plan.feasible, plan.migrated_bytes) == (True, 8)


def test_segments_that_take_more_than_the_capacity() -> None:
    plan = segments(Migration.of([4, 4], [[(0, "r")], [(1, "r")]]), 7, segments=2)
    assert not plan.feasible
    assert "2 segments" in plan.reason


def test_a_negative_size_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"memx_trace": 1}\n{"op": "alloc", "id": 1, "size": -5}\n')
    with pytest.raises(TraceError, match=r"t\.jsonl:2: id 1 has a negative size"):
        read_migration(Trace(path))


@settings(max_examples=80, deadline=None)
@given(small.problems())
def test_moves_of_any_plan_hold_and_move_what_it_says(problem: small.Small) -> None:
    migration = Migration.of(problem.sizes, problem.steps, problem.keep)
    for mode in ("exclusive", "packed", "unsegmented"):
        plan = segments(migration, problem.capacity, mode=mode)
        for ahead, linger in ((0, False), (1, True), (100, True)):
            if plan.feasible:
                assert plan.check(plan.moves(ahead, linger=linger)).bytes == plan.migrated_bytes


PAIR = Migration.of([4, 3], [[(0, "w")], [(1, "w")], [(0, "r")]], keep=[1])
GOOD = [
    Move(0, 0, "make"),
    Move(1, 0, "out"),
    Move(1, 1, "make"),
    Move(2, 1, "out"),
    Move(2, 0, "in"),
    Move(3, 0, "drop"),
]


def test_an_account_of_moves() -> None:
    moved = check_moves(PAIR, GOOD, 4)
    assert (moved.in_bytes, moved.out_bytes, moved.peak_bytes) == (4, 7, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: None}, "more than the capacity"),
        ({1: Move(1, 0, "drop")}, "has not what was last written"),
        ({3: Move(2, 1, "drop")}, "kept, and its contents are not on the host"),
        ({4: Move(2, 0, "make")}, "whose contents are not on the device"),
        ({4: None, 5: None}, "needs object 0, which is not on the device"),
        ({0: Move(0, 0, "in"), 1: Move(0, 0, "in")}, "it is there already"),
        ({1: Move(1, 1, "out")}, "it is not there"),
        ({3: Move(0, 1, "out")}, "comes after one before"),
        ({5: Move(3, 0, "sell")}, "no such kind"),
    ],
)
def test_moves_that_do_not_hold(change: dict[int, Move | None], message: str) -> None:
    moves = [change.get(i, move) for i, move in enumerate(GOOD)]
    with pytest.raises(PlanError, match=message):
        check_moves(PAIR, [move for move in moves if move is not None], 4)


def test_segments_are_held_to() -> None:
    moves = [Move(0, 0, "make"), Move(1, 1, "make"), Move(2, 1, "out"), Move(3, 0, "drop")]
    assert check_moves(PAIR, moves, 8, [4, 3], [0, 1], exclusive=True).bytes == 3
    assert check_moves(PAIR, moves, 8, [7], [0, 0]).bytes == 3
    for parts, exclusive, message in (([4, 3], True, "has another object"), ([6, 1], False, "does not hold")):
        with pytest.raises(PlanError, match=message if parts != [4, 3] else "segment 0"):
            check_moves(PAIR, moves, 8, parts, [0, 0], exclusive=exclusive)
    with pytest.raises(PlanError, match="do not fit"):
        check_moves(PAIR, moves, 8, [6, 3], [0, 1])


def test_the_shared_traces_are_the_shared_problems() -> None:
    for path, known in small.shared():
        problem = read_migration(Trace(path))
        assert problem.size.tolist() == [o["size"] for o in known["objects"]]
        assert problem.keep.tolist() == [o["keep"] for o in known["objects"]]
        modes = {1: "r", 2: "w", 3: "rw"}
        steps: list[dict[int, str]] = [{} for _ in known["accesses"]]
        for o, t, mode in zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), strict=True):
            steps[t][o] = modes[mode]
        assert steps == [{a["o"]: a["m"] for a in row} for row in known["accesses"]]
        assert json.loads(path.read_text().splitlines()[0])["capacity"] == known["capacity"]
