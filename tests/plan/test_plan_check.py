"""The validator against a pairwise definition of overlap, and against layouts made wrong on purpose."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_problems import buffers, overlaps, perfect_packing

from memx.errors import PlanError
from memx.plan import Buffer, Buffers, check_layout, find_overlap, layout


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_finds_an_overlap_exactly_where_there_is_one(data: st.DataObject) -> None:
    rows = data.draw(buffers(max_count=14, max_time=data.draw(st.sampled_from([4, 9, 40])), max_size=6))
    offsets = [data.draw(st.integers(0, 30)) for _ in rows]
    pair = find_overlap(Buffers.of(rows), np.array(offsets, np.int64))
    expected = overlaps(rows, offsets)
    assert (pair in expected) if expected else pair is None


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_overlap_is_named(seed: int) -> None:
    rng = random.Random(seed)
    rows = perfect_packing(rng, 120)
    problem = Buffers.of(rows)
    offsets = layout(rows, method="greedy").offsets
    check_layout(problem, offsets)
    victim = rng.choice([i for i in range(len(rows)) if offsets[i] > 0])
    offsets[victim] -= 1
    planted = overlaps(rows, offsets.tolist())
    if not planted:  # it had air below it
        check_layout(problem, offsets)
        return
    with pytest.raises(PlanError, match=rf"buffer {rows[victim].id!r} .*overlap|overlap.*"):
        check_layout(problem, offsets)
    assert find_overlap(problem, offsets) in planted


@pytest.mark.parametrize(
    ("row", "offset", "capacity", "problem"),
    [
        (Buffer("a", 0, 2, 8), -1, None, "below zero"),
        (Buffer("a", 0, 2, 8, alignment=4), 6, None, "not aligned"),
        (Buffer("a", 0, 2, 8, offset=16), 8, None, "where it was fixed"),
        (Buffer("a", 0, 2, 8), 3, 10, "capacity of 10"),
        (Buffer("a", 0, 2, 8), (1 << 63) - 4, None, "64-bit"),
    ],
)
def test_a_misplaced_buffer_is_named(row: Buffer, offset: int, capacity: int | None, problem: str) -> None:
    with pytest.raises(PlanError, match=rf"buffer 'a' at offset {offset} .*{problem}"):
        check_layout(Buffers.of([row]), np.array([offset], np.int64), capacity)


def test_a_layout_of_another_length_is_refused() -> None:
    with pytest.raises(PlanError, match="1 buffers"):
        check_layout(Buffers.of([(0, 1, 8)]), np.zeros(2, np.int64))


def test_what_occupies_nothing_overlaps_nothing() -> None:
    rows = [Buffer("a", 0, 9, 8), Buffer("never", 4, 4, 8), Buffer("empty", 2, 5, 0)]
    check_layout(Buffers.of(rows), np.zeros(3, np.int64), capacity=8)
