"""Random programs in every reuse mode, eager and lazy: no race, no wrong byte, nothing failed that need not.

``benchmarks/random_events.py`` runs as many as wanted and shrinks what fails.
"""

from __future__ import annotations

import pytest

import memx
from memx.replay import replay
from memx.trace import events as ev

from .programs import generate, setting
from .rules import Program, RuleError, check

PAGE = 64 << 10
LENGTH = 1500


def run(seed: int, reuse: str, lazy: bool) -> int:
    """Replays one program; returns the number of its events."""
    plan = setting(seed, PAGE, reuse, lazy)
    events = list(check(generate(plan, LENGTH)))
    before = memx.sim.usage()
    result = replay(events, plan.limits)
    assert result.failures == [], (seed, plan)
    assert (result.races, result.mismatches) == (0, 0), (seed, plan, memx.sim.races()[:1])
    assert result.ok
    assert result.peak_host_bytes <= plan.limits.host_limit
    assert memx.sim.usage() == before
    return len(events)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
def test_random_programs(reuse: str, lazy: bool) -> None:
    for seed in range(15):
        run(seed, reuse, lazy)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("kernels")
def test_two_hundred_thousand_random_events() -> None:
    done = 0
    for seed in range(1000, 1200):
        for reuse in ("stream", "default", "mutual"):
            for lazy in (False, True):
                done += run(seed, reuse, lazy)
        if done >= 200_000:
            return
    pytest.fail(f"only {done} events")


def test_the_generator_is_deterministic_and_varied() -> None:
    events = [event for seed in range(20) for event in generate(setting(seed, PAGE), 500)]
    again = [event for seed in range(20) for event in generate(setting(seed, PAGE), 500)]
    assert events == again
    kinds = {type(event) for event in events}
    assert kinds == {
        kind
        for name in ev.__all__
        if isinstance(kind := getattr(ev, name), type) and hasattr(kind, "line") and name != "Operand"
    }


def written(stream: int, buffer: str = "a") -> ev.Kernel:
    return ev.Kernel(writes=(ev.Operand(buffer),), stream=stream)


START = (ev.Stream(1, "blocking"), ev.Stream(2, "nonblocking"), ev.Stream(3, "blocking"))


@pytest.mark.parametrize(
    ("events", "allowed"),
    [
        ((ev.Alloc("a", 9, 1), written(1), written(2)), False),
        ((ev.Alloc("a", 9, 1), written(1), ev.Wait(2, 1), written(2)), True),
        ((ev.Alloc("a", 9, 1), ev.Wait(2, 1), written(1), written(2)), False),
        ((ev.Alloc("a", 9, 1), written(1), ev.Sync(1), written(2)), True),
        ((ev.Alloc("a", 9, 1), written(2)), False),
        ((ev.Alloc("a", 9, 1), written(1), written(0)), True),  # implicitly
        ((ev.Alloc("a", 9, 2), written(2), written(0)), False),
        ((ev.Alloc("a", 9, 1), ev.Alloc("b", 9, 0), written(1), written(3)), False),
        ((ev.Alloc("a", 9, 1), ev.Alloc("b", 9, 0), written(1), written(0, "b"), written(3)), True),
        ((ev.Alloc("a", 9, 0), written(1)), False),  # no action carries the implicit order yet
        ((ev.Alloc("a", 9, 1), ev.Wait(2, 1), written(2), ev.Free("a")), False),
        ((ev.Alloc("a", 9, 1), ev.Wait(2, 1), written(2), ev.Wait(1, 2), ev.Free("a")), True),
        ((ev.Alloc("a", 9, 1), ev.Wait(2, 1), written(2), ev.RecordStream("a", 2), ev.Free("a")), True),
        ((ev.Alloc("a", 9, 1), ev.Wait(2, 1), written(2), ev.Free("a", 2)), True),
        ((ev.Alloc("a", 9, 1), ev.Free("a"), written(1)), False),
        ((ev.Alloc("a", 9, 2), ev.Capture("begin", 2), ev.Sync()), False),
        ((ev.Alloc("a", 9, 2), ev.Capture("begin", 2), ev.Wait(1, 2)), False),
        ((ev.Capture("begin", 1), ev.Alloc("a", 9, 0)), False),
        ((ev.Alloc("a", 9, 1, tag="t"), ev.Pause("t"), written(1)), False),
    ],
)
def test_the_rules_say_what_is_correct(events: tuple[ev.Event, ...], allowed: bool) -> None:
    program = Program()
    for event in (*START, *events[:-1]):
        program.apply(event)
    if allowed:
        program.apply(events[-1])
    else:
        with pytest.raises(RuleError):
            program.apply(events[-1])
