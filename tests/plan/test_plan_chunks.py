"""Chunks whose moving hides behind the computing of the next."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx.plan import makespan, plan_chunks


def compositions(total: int) -> list[list[int]]:
    out = []
    for cuts in itertools.product([False, True], repeat=total - 1):
        sizes, size = [], 1
        for cut in cuts:
            if cut:
                sizes.append(size)
                size = 1
            else:
                size += 1
        out.append([*sizes, size])
    return out


def test_the_published_example() -> None:
    """M=4096, K=3072, N=8192 in half precision: 803 us to compute, 1071 us to communicate, 384 rows in 143 us."""
    measured = {384: 143.0, 4096: 1071.0}
    chunks = plan_chunks(4096, lambda rows: 803 * rows / 4096, measured.__getitem__, 384, 128, conflict=1.15)
    assert chunks == [512, 896, 896, 896, 896]


def test_the_short_one_is_last_where_computing_takes_longer() -> None:
    assert plan_chunks(100, lambda n: 2.0 * n, lambda n: 1.0 * n, 10, 5) == [5] * 18 + [10]
    assert plan_chunks(100, float, lambda n: 30 + n / 2, 10, 5) == [40, 45, 15]


@settings(max_examples=200)
@given(
    total=st.integers(1, 5000),
    short=st.integers(1, 600),
    align=st.sampled_from([1, 7, 64, 128]),
    a=st.floats(0.1, 10),
    b=st.floats(0.1, 10),
    start=st.floats(0, 100),
    most=st.one_of(st.none(), st.integers(1, 9)),
)
def test_chunks_partition_the_total(
    total: int, short: int, align: int, a: float, b: float, start: float, most: int | None
) -> None:
    chunks = plan_chunks(total, lambda n: a * n, lambda n: start + b * n, short, align, most)
    assert sum(chunks) == total
    assert min(chunks) > 0
    assert most is None or len(chunks) <= most
    assert sum(chunk % align != 0 for chunk in chunks) <= 1


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 9),
    a=st.lists(st.integers(0, 20), min_size=9, max_size=9),
    b=st.lists(st.integers(0, 20), min_size=9, max_size=9),
    most=st.one_of(st.none(), st.integers(1, 4)),
)
def test_exact_is_the_least_of_all_ways(total: int, a: list[int], b: list[int], most: int | None) -> None:
    chunks = plan_chunks(
        total, lambda n: a[n - 1] if n else 0, lambda n: b[n - 1] if n else 0, 1, 1, most, mode="exact"
    )
    assert sum(chunks) == total

    def cost(sizes: list[int]) -> float:
        return makespan(sizes, lambda n: a[n - 1], lambda n: b[n - 1])

    assert cost(chunks) == min(cost(c) for c in compositions(total) if most is None or len(c) <= most)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(memx.InvalidValueError, match="align"):
        plan_chunks(10_000, float, float, 1, mode="exact")
    with pytest.raises(memx.InvalidValueError, match="'fast'"):
        plan_chunks(10, float, float, 1, mode="fast")
    with pytest.raises(memx.InvalidValueError, match="positive"):
        plan_chunks(0, float, float, 1)
