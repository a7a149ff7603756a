"""What planning over segments finds, beside every possibility."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import migration_problems as small
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memx.plan import Migration, _core, segments
from memx.plan.migration.bound import relax
from memx.plan.migration.islands import Effort

MODES = ("exclusive", "packed", "unsegmented")
MOST_ASSIGNMENTS = 20_000  # that are all tried
SHARED = [pytest.param(path, known, id=known["name"]) for path, known in small.shared()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("path", "known"), SHARED)
def test_every_proven_optimum_is_found_and_proven(path: Path, known: dict[str, Any], mode: str) -> None:
    plan = segments(path, known["capacity"], 5.0, mode=mode)
    optimum = known["optimum"][mode]
    assert plan.migrated_bytes == (optimum and optimum["bytes"])
    assert plan.feasible is plan.optimal is (optimum is not None)
    assert plan.lower_bound == pytest.approx(known["optimum"]["unsegmented"]["lp_bound"])
    assert plan.seconds < 5
    if mode != "unsegmented":
        assert list(plan.segments) == known["segments"]


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize(
    "seeds", [range(1, 3), pytest.param(range(3, 23), marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize(("path", "known"), [param for param in SHARED if param.values[1]["optimum"]["packed"]])
def test_the_genetic_algorithm_finds_them_from_any_seed(
    path: Path, known: dict[str, Any], seeds: range, mode: str
) -> None:
    for seed in seeds:
        plan = segments(path, known["capacity"], 5.0, seed, mode=mode)
        assert plan.migrated_bytes == known["optimum"][mode]["bytes"]
        assert plan.method != "branch and bound"


def migration_of(problem: small.Small) -> Migration:
    return Migration.of(problem.sizes, problem.steps, problem.keep)


@settings(max_examples=80, deadline=None)
@given(small.problems())
def test_exclusive_plans_are_the_best_assignment(problem: small.Small) -> None:
    assume(len(small.largest(problem)) ** len(problem.sizes) <= MOST_ASSIGNMENTS)
    best = small.best_assignment(problem, small.largest(problem), exclusive=True)
    plan = segments(migration_of(problem), problem.capacity)
    assert plan.migrated_bytes == best
    assert plan.optimal is plan.feasible is (best is not None)


@settings(max_examples=40, deadline=None)
@given(small.problems(steps=6))
def test_packed_plans_are_the_best_assignment(problem: small.Small) -> None:
    assume(len(small.largest(problem)) ** len(problem.sizes) <= MOST_ASSIGNMENTS)
    best = small.best_assignment(problem, small.largest(problem), exclusive=False)
    plan = segments(migration_of(problem), problem.capacity, mode="packed")
    assert plan.migrated_bytes == best
    assert plan.optimal is plan.feasible is (best is not None)


@settings(max_examples=80, deadline=None)
@given(small.problems())
def test_plans_without_segments_are_the_least(problem: small.Small) -> None:
    best = small.least_bytes(problem, frozenset(range(len(problem.sizes))), problem.capacity)
    plan = segments(migration_of(problem), problem.capacity, mode="unsegmented")
    assert plan.migrated_bytes == best
    assert plan.optimal
    assert plan.lower_bound is not None
    assert plan.lower_bound <= best


@settings(max_examples=40, deadline=None)
@given(small.problems(most=6))
def test_fewer_segments_never_serve_better(problem: small.Small) -> None:
    most = len(small.largest(problem))
    found = [
        segments(migration_of(problem), problem.capacity, mode="packed", segments=count).migrated_bytes
        for count in range(1, most + 1)
    ]
    known = [moved for moved in found if moved is not None]
    assert known == sorted(known, reverse=True)
    assert found[: most - len(known)] == [None] * (most - len(known))


@settings(max_examples=60, deadline=None)
@given(small.problems(most=6, steps=6), st.randoms(use_true_random=False))
def test_any_assignment_is_priced_as_its_segments_are(problem: small.Small, random: Random) -> None:
    used = sorted({o for step in problem.steps for o, _ in step})
    sizes = small.largest(problem)
    assume(used and sizes)
    fitting = [[s for s, size in enumerate(sizes) if problem.sizes[o] <= size] for o in used]
    homes = [random.choice(fits) for fits in fitting]
    groups = [frozenset(o for o, home in zip(used, homes, strict=True) if home == s) for s in range(len(sizes))]
    core, column = migration_of(problem).core, np.array(sizes, np.int64)
    alone = [small.alone(problem, group) for group in groups]
    together = [small.least_bytes(problem, group, size) for group, size in zip(groups, sizes, strict=True)]
    for exclusive, prices in ((True, alone), (False, together)):
        _, excess, moved, exact = _core.settle(core, column, exclusive, np.array(homes, np.int64), 0, 0, 1.0)
        assert (excess > 0) is (None in prices)
        if not excess:
            assert exact
            assert moved == sum(price for price in prices if price is not None)


# Sizes A8 B6 C4 D3 E2, each produced on the device, accesses A B C A D B E C A; two segments.
SIZES = (8, 6, 4, 3, 2)
STEPS = tuple(((o, mode),) for o, mode in zip((0, 1, 2, 0, 3, 1, 4, 2, 0), "wwwrwrwrr", strict=True))
PATENT = Migration.of(SIZES, STEPS, ids="ABCDE")


def test_the_five_objects_that_two_segments_serve_with_20_bytes() -> None:
    plan = segments(PATENT, 14)
    assert list(plan.segments) == [8, 6]
    assert (plan.migrated_bytes, plan.optimal) == (20, True)
    assert sorted(map(tuple, (plan.objects_in(0), plan.objects_in(1)))) == [(0,), (1, 2, 3, 4)]


def test_their_next_best_assignment_costs_32_and_the_worst_44() -> None:
    problem = small.Small(SIZES, STEPS, frozenset(), 14)
    core = PATENT.core
    sizes = np.array([8, 6], np.int64)
    costs = []
    for homes in product(range(2), repeat=5):
        if homes[0] == 1:
            continue
        groups = [frozenset(o for o in range(5) if homes[o] == s) for s in range(2)]
        cost = sum(small.alone(problem, group) or 0 for group in groups)
        _, excess, moved, _ = _core.settle(core, sizes, True, np.array(homes, np.int64), 0, 0, 1.0)
        assert (excess, moved) == (0, cost)
        costs.append(cost)
    assert sorted(costs)[0] == 20
    assert sorted(costs)[1] == 32
    assert max(costs) == 44


@pytest.mark.parametrize("mode", MODES)
def test_nothing_moves_where_everything_fits_and_is_produced_there(mode: str) -> None:
    plan = segments(PATENT, 23, mode=mode)
    assert (plan.migrated_bytes, plan.lower_bound, plan.optimal) == (0, 0, True)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_plan(mode: str) -> None:
    path, known = small.shared()[-2]
    effort = Effort(local=False, patience=1, generations=3)
    plans = [segments(path, known["capacity"], 20, seed, mode=mode, effort=effort) for seed in (7, 7)]
    assert plans[0].homes.tolist() == plans[1].homes.tolist()
    assert plans[0].moves() == plans[1].moves()


@settings(max_examples=40, deadline=None)
@given(small.problems())
def test_the_relaxation_is_a_bound(problem: small.Small) -> None:
    best = small.least_bytes(problem, frozenset(range(len(problem.sizes))), problem.capacity)
    assert best is not None
    assert relax(migration_of(problem), problem.capacity).lower_bound <= best
