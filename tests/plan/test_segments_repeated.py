"""The bound of a round that is repeated, against arithmetic and against many rounds in a row."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memx.plan.migration.bound import relax
from memx.plan.migration.problem import Migration


def test_cyclic_reads_of_one_page_too_many() -> None:
    """Five pages in turn with room for four: keeping one takes 4 of the 15 page-steps left beside the page in use."""
    problem = Migration.of([1000] * 5, [[(i, "r")] for i in range(5)])
    assert relax(problem, 4000, repeats=[True] * 5).lower_bound == 1250
    assert relax(problem, 5000, repeats=[True] * 5).lower_bound == 0
    assert relax(problem, 1000, repeats=[True] * 5).lower_bound == 5000


def test_what_is_changed_goes_out_and_comes_back() -> None:
    """State that is updated once a round, beside an operation that needs the device for itself."""
    problem = Migration.of([700, 1000], [[(0, "rw")], [(1, "w")]])
    assert relax(problem, 1000, repeats=[True, False]).lower_bound == 1400
    # Half of it stays where the device is larger by half.
    assert relax(problem, 1350, repeats=[True, False]).lower_bound == 700
    # What is overwritten each round need not come back, and what is only read need not go out.
    overwritten = Migration.of([700, 1000], [[(0, "w")], [(1, "w")]])
    assert relax(overwritten, 1000, repeats=[True, False]).lower_bound == 0
    only_read = Migration.of([700, 1000], [[(0, "r")], [(1, "w")]])
    assert relax(only_read, 1000, repeats=[True, False]).lower_bound == 700
    # Nor need what another round has no use for.
    assert relax(problem, 1000, repeats=[False, False]).lower_bound == 0


ACCESSES = st.lists(st.dictionaries(st.integers(0, 3), st.sampled_from(["r", "w", "rw"]), min_size=1, max_size=2))


@settings(max_examples=150)
@given(ACCESSES.filter(bool), st.lists(st.integers(1, 9), min_size=4, max_size=4), st.integers(0, 12))
def test_rounds_in_a_row_move_no_less(steps: list[dict[int, str]], sizes: list[int], room: int) -> None:
    """Of many rounds as one problem, each costs at least as much but for what the first begins and the last leaves."""
    one = [list(step.items()) for step in steps]
    problem = Migration.of(sizes, one)
    capacity = int(problem.step_bytes.max()) + room
    bound = relax(problem, capacity, repeats=[True] * 4).lower_bound
    rounds = 12
    unrolled = relax(Migration.of(sizes, one * rounds), capacity).lower_bound
    spare = 3 * sum(sizes)
    assert rounds * bound <= unrolled + spare
    # And it is no smaller than what a round adds there, but for the same.
    assert unrolled <= rounds * (bound + 1) + spare
