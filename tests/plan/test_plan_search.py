"""The exact search: against exhaustive answers, on problems with a known answer, and within its limits."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_problems import buffers, effort_case, lowest_height, overlaps, perfect_packing

from memx.errors import PlanError
from memx.plan import Buffer, Buffers, check_layout, layout


@given(buffers())
@settings(max_examples=300, deadline=None)
def test_finds_the_lowest_and_proves_it(rows: list[Buffer]) -> None:
    result = layout(rows, method="exact")
    assert result.height == lowest_height(rows)
    assert result.optimal
    assert not overlaps(rows, result.offsets.tolist())
    assert result.seconds < 5


@given(buffers(fixed=True))
@settings(max_examples=300, deadline=None)
def test_works_around_fixed_offsets(rows: list[Buffer]) -> None:
    lowest = lowest_height(rows)
    if lowest is None:
        with pytest.raises(PlanError, match="fixed"):
            layout(rows, method="exact")
        return
    result = layout(rows, method="exact")
    assert result.height == lowest
    assert result.optimal
    check_layout(Buffers.of(rows), result.offsets)


@given(buffers(fixed=True), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_says_whether_it_fits_and_never_wrongly_that_it_cannot(rows: list[Buffer], capacity: int) -> None:
    lowest = lowest_height(rows)
    if lowest is None:
        return
    result = layout(rows, capacity, method="exact")
    assert result.fits == (lowest <= capacity)
    assert result.infeasible == (not result.fits)


@pytest.mark.parametrize("seed", range(5))
def test_packs_what_was_cut_from_a_full_rectangle(seed: int) -> None:
    rows = perfect_packing(random.Random(seed), 60)
    assert layout(rows, capacity=1000, method="greedy").fits is False
    result = layout(rows, capacity=1000, time_limit=30)
    assert result.fits
    assert result.height == 1000


def test_a_proof_beyond_the_bound() -> None:
    """Three that meet pairwise one after the other, of which two must lie apart from a third's neighbours."""
    rows = [(0, 2, 3), (1, 4, 2), (3, 6, 3), (5, 7, 2), (0, 1, 1), (2, 3, 3), (6, 7, 3)]
    named = [Buffer(i, *row) for i, row in enumerate(rows)]
    lowest = lowest_height(named)
    result = layout(rows, method="exact")
    assert result.height == lowest
    assert result.optimal
    assert lowest is not None
    refused = layout(rows, capacity=lowest - 1, method="exact")
    assert refused.infeasible


def test_the_effort_case() -> None:
    first, second = (layout(effort_case(), time_limit=10, seed=1) for _ in range(2))
    assert first.height < 110_000
    assert first.offsets.tolist() == second.offsets.tolist()
    assert max(first.seconds, second.seconds) < 10.1
    check_layout(Buffers.of(effort_case()), first.offsets)


@given(buffers(fixed=True))
@settings(max_examples=60, deadline=None)
def test_genetic_layouts_hold(rows: list[Buffer]) -> None:
    lowest = lowest_height(rows)
    if lowest is None:
        return
    result = layout(rows, method="genetic", time_limit=0.02)
    check_layout(Buffers.of(rows), result.offsets)
    assert result.height >= lowest
    assert not result.optimal or result.height == lowest


@pytest.mark.parametrize("seed", range(3))
def test_genetic_gets_below_greedy(seed: int) -> None:
    rows = perfect_packing(random.Random(seed), 150)
    greedy = layout(rows, method="greedy")
    evolved = layout(rows, method="genetic", time_limit=1)
    assert evolved.height < greedy.height
    assert evolved.method == "genetic"
    goal = evolved.height
    first, second = (layout(rows, goal, method="genetic", time_limit=30, seed=7) for _ in range(2))
    assert first.fits
    assert first.offsets.tolist() == second.offsets.tolist()


def hard() -> list[Buffer]:
    """No slack, and far too many pieces to be found in the time of a test."""
    return perfect_packing(random.Random(1), 900)


def test_the_time_limit_holds_in_the_search() -> None:
    rows = hard()
    started = time.perf_counter()
    result = layout(rows, time_limit=0.5)
    assert time.perf_counter() - started < 1.0
    assert result.optimal is False


def test_an_interrupt_comes_through_the_search() -> None:
    rows = hard()
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = threading.Timer(0.4, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        layout(rows, time_limit=60)
    assert time.perf_counter() - sent[0] < 0.5  # a tenth of that where nothing else runs


def test_others_run_meanwhile() -> None:
    """The search does not hold the interpreter's lock."""
    done = threading.Event()
    worker = threading.Thread(target=lambda: (layout(hard(), time_limit=1.0), done.set()))
    worker.start()
    turns = 0
    while not done.is_set():
        turns += 1
        done.wait(0.005)
    worker.join()
    assert turns > 50


def test_what_is_too_large_for_exact_is_refused() -> None:
    with pytest.raises(PlanError, match="too many for method exact"):
        layout([(0, 1, 1)] * 5000, method="exact")
