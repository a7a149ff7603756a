"""Layouts against exhaustive answers and arithmetic."""

from __future__ import annotations

import random
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from plan_problems import buffers, effort_case, lowest_height, overlaps, perfect_packing

from memx.errors import InvalidValueError, PlanError
from memx.plan import Buffer, Buffers, layout


@given(buffers())
@settings(max_examples=150, deadline=None)
def test_greedy_holds_and_claims_no_more_than_is_so(rows: list[Buffer]) -> None:
    result = layout(rows, method="greedy")
    assert not overlaps(rows, result.offsets.tolist())
    assert all(o % b.alignment == 0 for b, o in zip(rows, result.offsets.tolist(), strict=True))
    lowest = lowest_height(rows)
    assert lowest is not None
    assert result.height >= lowest >= result.lower_bound
    if result.optimal:
        assert result.height == lowest


@given(buffers(fixed=True))
@settings(max_examples=150, deadline=None)
def test_fixed_offsets_are_kept_or_refused(rows: list[Buffer]) -> None:
    lowest = lowest_height(rows)
    if lowest is None:
        with pytest.raises(PlanError, match="fixed"):
            layout(rows, method="greedy")
        return
    result = layout(rows, method="greedy")
    assert not overlaps(rows, result.offsets.tolist())
    assert all(b.offset in (None, o) for b, o in zip(rows, result.offsets.tolist(), strict=True))
    assert result.height >= lowest
    if result.optimal:
        assert result.height == lowest


def test_the_bound_is_the_most_alive_at_once() -> None:
    rows = [Buffer("a", 0, 3, 512), Buffer("b", 3, 6, 512), Buffer("c", 4, 4, 512), Buffer("d", 6, 9, 1024)]
    result = layout(rows)
    assert (result.height, result.lower_bound, result.optimal, result.fits) == (1024, 1024, True, None)


def test_alignment_raises_what_is_proven_lowest_but_not_the_load() -> None:
    result = layout([Buffer(i, 0, 1, 100, alignment=512) for i in range(3)])
    assert (result.height, result.lower_bound, result.optimal) == (1124, 300, True)


@pytest.mark.parametrize(
    ("capacity", "fits", "infeasible"), [(1024, True, False), (4096, True, False), (1023, False, True)]
)
def test_capacity(capacity: int, fits: bool, infeasible: bool) -> None:
    result = layout([(0, 2, 512), (1, 3, 512), (2, 4, 512)], capacity)
    assert (result.fits, result.infeasible) == (fits, infeasible)


def test_nothing_to_place() -> None:
    for rows in ([], [Buffer("a", 3, 3, 8), Buffer("b", 0, 9, 0)]):
        result = layout(rows, capacity=0)
        assert (result.height, result.lower_bound, result.optimal, result.fits) == (0, 0, True, True)
        assert len(result.offsets) == len(rows)


def test_negative_times_and_numpy_columns() -> None:
    lower, upper = np.array([-5, -2, 0], np.int32), np.array([-2, 1, 4], np.int32)
    result = layout(Buffers(["x", "y", "z"], lower, upper, np.array([4, 4, 4], np.int32)))
    assert result.height == 8


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 2, 8), (5, 2, 8)], "buffer 1: it ends at 2, before it begins at 5"),
        ([(0, 2, -8)], "buffer 0: size -8 is negative"),
        ([Buffer("x", 0, 2, 8, alignment=0)], "buffer 'x': alignment 0"),
        ([Buffer("x", 0, 2, 8, alignment=4, offset=6)], "'x'.*6 is not a multiple of its alignment 4"),
        ([Buffer("x", 0, 2, 8, offset=-4)], "'x'.*-4 is negative"),
        ([(0, 2, 8), (0, 2, 1 << 63)], "buffer 1: size 9223372036854775808"),
        ([(0, 2, 3 << 60), (0, 2, 3 << 60)], "buffer 1: with its size"),
        ([(0, 2, 1.5)], "buffer 0: size 1.5 is not a whole number"),
        ([(0, 2)], r"buffer 0: neither .*\(0, 2\)"),
    ],
)
def test_malformed_problems_name_the_buffer(rows: list[object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        layout(rows)  # type: ignore[arg-type]


def test_fixed_offsets_that_collide_name_both() -> None:
    rows = [Buffer("a", 0, 4, 8, offset=0), Buffer("b", 3, 6, 8, offset=4), Buffer("c", 0, 9, 8)]
    with pytest.raises(PlanError, match=r"'b': its fixed offset 4 .*'a'"):
        layout(rows)


def test_fixed_offsets_count_for_the_height() -> None:
    result = layout([Buffer("a", 0, 4, 8, offset=64), Buffer("b", 0, 4, 8)])
    assert (result.height, result.lower_bound, result.optimal) == (72, 16, True)


def test_bad_arguments_are_refused() -> None:
    for arguments in (
        {"method": "magic"},
        {"time_limit": -1},
        {"time_limit": float("nan")},
        {"capacity": -1},
    ):
        with pytest.raises(InvalidValueError):
            layout([(0, 1, 1)], **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["greedy", "genetic", "exact", "auto"])
def test_same_seed_same_layout(method: str) -> None:
    """Ended by the goal that it met, not by the time: the same on any machine."""
    rows = perfect_packing(random.Random(3), 60)
    goal = {"greedy": None, "genetic": 1150}.get(method, 1000)
    first, second = (layout(rows, goal, 60, seed=5, method=method) for _ in range(2))
    assert first.offsets.tolist() == second.offsets.tolist()
    assert first.fits in (None, True)


def test_other_seeds_look_elsewhere() -> None:
    rows = perfect_packing(random.Random(3), 200)
    assert len({tuple(layout(rows, 1000, 60, seed).offsets.tolist()) for seed in range(6)}) > 1


def test_effort_case_arithmetic() -> None:
    result = layout(effort_case(), method="greedy")
    assert result.lower_bound == 102_400
    assert result.height <= 121_856


def _crowded(count: int) -> Buffers:
    rng = np.random.default_rng(0)
    lower = rng.integers(0, 2 * count, count)
    return Buffers(range(count), lower, lower + rng.integers(1, count, count), rng.integers(1, 1 << 20, count))


def test_the_time_limit_holds() -> None:
    rows = _crowded(20_000)
    result = layout(rows, time_limit=0.5)
    assert result.seconds < 1.0
    assert not result.optimal


def test_an_interrupt_comes_through_at_once() -> None:
    rows = _crowded(20_000)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = threading.Timer(0.7, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        layout(rows, time_limit=60)
    assert time.perf_counter() - sent[0] < 0.5  # a tenth of that where nothing else runs
