"""The book-keeping of contents against a plain byte array."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.replay.contents import Contents, Seeds, count_differences, pattern

SIZE = 64
ranges = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted)


def word(k: int, seed: int) -> int:
    return ((k * 0x9E3779B1 + (seed >> 32)) ^ seed) & 0xFFFFFFFF


@given(
    seed=st.integers(0, (1 << 64) - 1),
    offset=st.integers(0, 1 << 40),
    nbytes=st.integers(0, 40),
)
def test_pattern_follows_its_definition(seed: int, offset: int, nbytes: int) -> None:
    expected = bytes(struct.pack("<I", word(b >> 2, seed))[b & 3] for b in range(offset, offset + nbytes))
    assert pattern(seed, offset, nbytes).tobytes() == expected


@given(writes=st.lists(ranges, max_size=12), asked=ranges)
def test_spans_say_which_write_was_last(writes: list[list[int]], asked: list[int]) -> None:
    contents = Contents()
    last = [0] * SIZE
    for seed, (start, end) in enumerate(writes, 1):
        contents.write(start, end, seed)
        last[start:end] = [seed] * (end - start)
    found = [0] * SIZE
    for start, end, seed in contents.spans:
        assert start < end
        assert not any(found[start:end])
        found[start:end] = [seed] * (end - start)
    assert found == last
    assert [span[0] for span in contents.spans] == sorted(span[0] for span in contents.spans)
    within = [0] * SIZE
    for start, end, seed in contents.within(*asked):
        within[start:end] = [seed] * (end - start)
    assert within == [last[i] if asked[0] <= i < asked[1] else 0 for i in range(SIZE)]


def test_a_whole_write_leaves_one_span() -> None:
    contents = Contents()
    contents.write(10, 20, 1)
    contents.write(0, SIZE, 2)
    assert contents.spans == ((0, SIZE, 2),)
    contents.forget()
    assert contents.spans == ()


@given(wrong=st.sets(st.integers(0, SIZE - 1)))
def test_differences_are_counted_by_the_byte(wrong: set[int]) -> None:
    contents = Contents()
    contents.write(0, 40, 7)
    contents.write(40, 60, 8)
    memory = np.concatenate([pattern(7, 0, 40), pattern(8, 40, 20), np.zeros(4, np.uint8)])
    memory[sorted(wrong)] ^= 0x55

    def read(offset: int, into: np.ndarray) -> None:
        into[:] = memory[offset : offset + len(into)]

    assert count_differences(contents, read) == sum(1 for byte in wrong if byte < 60)


@pytest.mark.parametrize("shift", [0, 32])
def test_seeds_differ_in_both_halves(shift: int) -> None:
    seeds = Seeds()
    halves = {seeds.next() >> shift & 0xFFFFFFFF for _ in range(1000)}
    assert len(halves) == 1000
