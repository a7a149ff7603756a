"""Replays on the simulated device: what they find, and what they must find."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memx
from memx.demo.spread import spread
from memx.replay import Limits, Result, replay
from memx.trace import events as ev

pytestmark = pytest.mark.usefixtures("simulated")

PAGE = 64 << 10


def run(*events: ev.Event, **options: Any) -> Result:
    limits = {
        "device_limit": 8 * PAGE,
        "host_limit": 32 * PAGE,
        "page": PAGE,
        "reuse": "default",
        "lazy": False,
    }
    verify = options.pop("verify", True)
    limits.update(options)
    return replay(list(events), Limits(**limits), verify=verify)


def kernel(reads: str = "", writes: str = "", stream: int = 0, **fields: Any) -> ev.Kernel:
    return ev.Kernel(tuple(map(ev.Operand, reads.split())), tuple(map(ev.Operand, writes.split())), stream, **fields)


@pytest.fixture(params=["eager", "lazy"])
def lazy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "lazy")


def test_a_missing_wait_is_a_race(lazy: bool) -> None:
    events = [
        ev.Stream(1, "nonblocking"),
        ev.Stream(2, "nonblocking"),
        ev.Alloc("a", PAGE, stream=1),
        ev.RecordStream("a", 2),
        ev.Hold(1),
        kernel(writes="a", stream=1),
        kernel(reads="a", stream=2),
    ]
    found = run(*events, lazy=lazy)
    assert not found.ok
    assert found.races == 1
    assert found.failed_expectations == 0
    ordered = run(*events[:-1], ev.Wait(2, 1), events[-1], lazy=lazy)
    assert ordered.ok
    assert ordered.races == 0


@pytest.mark.parametrize("verify", [True, False])
def test_a_kernel_counts_the_bytes_that_differ(monkeypatch: pytest.MonkeyPatch, lazy: bool, verify: bool) -> None:
    """A book-keeping that expects another pattern in half of the buffer finds that half different."""
    from memx.replay.contents import Contents

    write = Contents.write

    def wrong(self: Contents, start: int, end: int, seed: int) -> None:
        write(self, start, end, seed)
        write(self, start, (start + end) // 2, seed ^ 1)  # the lowest bit of every word

    monkeypatch.setattr(Contents, "write", wrong)
    result = run(ev.Alloc("a", PAGE), kernel(writes="a"), kernel(reads="a"), lazy=lazy, verify=verify)
    assert result.mismatches == (PAGE // 2 // 4 if verify else 0)
    assert result.ok is not verify


def test_a_check_counts_them_too(monkeypatch: pytest.MonkeyPatch, lazy: bool) -> None:
    from memx.replay.contents import Contents

    write = Contents.write
    monkeypatch.setattr(Contents, "write", lambda self, start, end, seed: write(self, start, end, seed ^ 1))
    result = run(ev.Alloc("a", PAGE), kernel(writes="a"), ev.CheckContents("a"), lazy=lazy)
    assert result.mismatches == PAGE // 4
    assert result.failed_expectations == 1


def test_parts_are_stamped_and_checked_apart(lazy: bool) -> None:
    def part(offset: int, nbytes: int | None = None) -> tuple[ev.Operand, ...]:
        return (ev.Operand("a", offset, nbytes),)

    result = run(
        ev.Alloc("a", 3 * PAGE + 100),
        ev.Kernel(writes=part(0)),
        ev.Kernel(writes=part(PAGE - 1, 3)),
        ev.Kernel(writes=part(7, 1)),
        ev.Kernel(reads=part(5, 2 * PAGE), writes=part(3 * PAGE + 1)),
        ev.Kernel(reads=part(0)),
        ev.CheckContents("a"),
        ev.Kernel(reads=part(3 * PAGE, 101), expect="invalid"),
        lazy=lazy,
    )
    assert result.failures == []
    assert result.ok


def test_threads_have_default_streams_of_their_own(lazy: bool) -> None:
    """A buffer written on one thread's stream and read on another's needs the wait between them."""
    events = [
        ev.Stream(7, "per_thread"),
        ev.Stream(1, "nonblocking"),
        ev.Alloc("a", PAGE, stream=7),
        kernel(writes="a", stream=7),
        ev.Wait(1, 7),
        ev.Thread("other"),
        ev.RecordStream("a", 7),
        ev.Wait(7, 1),
        kernel(reads="a", writes="a", stream=7),
        ev.CheckContents("a"),
        ev.Thread(0),
        ev.CheckContents("a"),
        ev.Free("a"),
        ev.Thread("other"),
        ev.Alloc("b", 8 * PAGE, stream=7),
        kernel(writes="b", stream=7),
        ev.Sync(),
    ]
    result = run(*events, lazy=lazy)
    assert result.failures == []
    assert result.ok
    unordered = [event for event in events if not isinstance(event, (ev.Wait, ev.CheckContents))]
    held = [*unordered[:3], ev.Hold(7), *unordered[3:]]
    assert run(*held, lazy=lazy).races


def test_a_failed_allocation_is_skipped_from_then_on(lazy: bool) -> None:
    result = run(
        ev.Alloc("big", -1, expect="invalid"),
        ev.RecordStream("big", 0),
        kernel(reads="big", writes="big"),
        ev.CheckContents("big"),
        ev.Free("big"),
        ev.Alloc("big", PAGE),
        kernel(writes="big"),
        kernel(reads="big"),
        lazy=lazy,
    )
    assert result.failures == []
    assert result.ok


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (ev.Alloc("b", -1), "invalid"),
        (ev.Alloc("b", PAGE, align=3), "invalid"),
        (ev.Free("never"), "invalid"),
        (kernel(reads="never"), "invalid"),
    ],
)
def test_an_unexpected_outcome_fails_the_replay(event: Any, outcome: str, lazy: bool) -> None:
    plain = run(ev.Alloc("a", PAGE), event, lazy=lazy)
    assert not plain.ok
    assert plain.failed_event == 2
    assert plain.error is not None
    assert outcome in plain.error
    event.expect = outcome
    try:
        assert run(ev.Alloc("a", PAGE), event, lazy=lazy).ok
    finally:
        event.expect = "ok"


def test_an_allocation_without_room_is_an_outcome_too() -> None:
    big = ev.Alloc("b", 100 * PAGE)
    assert run(big).failed_event == 1
    assert run(ev.Alloc("b", 100 * PAGE, expect="oom"), ev.Alloc("c", PAGE)).ok


def test_a_kernel_whose_operands_cannot_fit_together_is_not_queued() -> None:
    result = run(
        ev.Alloc("a", 5 * PAGE),
        ev.Alloc("b", 5 * PAGE),
        kernel(writes="a"),
        kernel(writes="b"),
        kernel(reads="a", writes="b", expect="oom"),
        ev.CheckContents("a"),
        ev.CheckContents("b"),
        lazy=True,
    )
    assert result.failures == []
    assert result.ok


def test_a_double_free_does_no_harm_to_the_next_owner(lazy: bool) -> None:
    result = run(
        ev.Alloc("a", PAGE),
        ev.Free("a"),
        ev.Alloc("b", PAGE),
        ev.Free("a", expect="invalid"),
        kernel(writes="b"),
        ev.CheckContents("b"),
        ev.Check("allocated_bytes.current", equals=PAGE),
        lazy=lazy,
    )
    assert result.failures == []


def test_pause_keeps_or_forgets(lazy: bool) -> None:
    result = run(
        ev.Alloc("w", 2 * PAGE, tag="weights"),
        ev.Alloc("c", 2 * PAGE, tag="cache"),
        kernel(writes="w c"),
        ev.Pause("weights"),
        ev.Pause("cache", keep=False),
        kernel(reads="w", expect="invalid"),
        ev.CheckContents("w"),
        ev.Trim(),
        ev.Check("reserved_bytes.current", equals=0),
        ev.Resume("weights"),
        ev.Resume("cache"),
        kernel(reads="w c"),
        ev.CheckContents("w"),
        ev.CheckContents("c"),
        lazy=lazy,
    )
    assert result.failures == []
    assert result.ok


def test_peaks_from_before_a_reset_are_in_the_result() -> None:
    result = run(
        ev.Alloc("a", 6 * PAGE),
        ev.Free("a"),
        ev.Sync(),
        ev.Trim(),
        ev.ResetPeak(),
        ev.Alloc("b", PAGE),
        ev.Check("allocated_bytes.peak", equals=PAGE),
    )
    assert result.failures == []
    assert result.peak_allocated_bytes == 6 * PAGE
    assert result.peak_reserved_bytes == 6 * PAGE


def test_driver_calls_are_counted_from_the_last_step() -> None:
    result = run(
        ev.Check("driver_calls.cuMemCreate", equals=0),
        ev.Alloc("a", PAGE),
        ev.Check("driver_calls.cuMemCreate", min=1),
        ev.Step("next"),
        ev.Check("driver_calls.cuMemCreate", equals=0),
        ev.Check("driver_calls.cuNoSuchCall", equals=0),
    )
    assert result.failures == []
    assert result.driver_calls["cuMemCreate"] >= 1


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (ev.Check("allocated_bytes.current", equals=0), "is 65536, not 0"),
        (ev.Check("allocated_bytes.current", max=PAGE - 1), "more than 65535"),
        (ev.Check("allocated_bytes.current", min=PAGE + 1), "less than 65537"),
    ],
)
def test_failed_checks_say_what_was_found(check: ev.Check, words: str) -> None:
    result = run(ev.Alloc("a", PAGE), check)
    assert result.failed_expectations == 1
    assert words in result.failures[0]


def test_a_statistic_that_does_not_exist_is_the_traces_fault() -> None:
    with pytest.raises(memx.TraceError, match="no statistic 'bytes'"):
        run(ev.Check("bytes", equals=0))


def test_faults_end_with_the_replay() -> None:
    assert run(ev.Fail("cuMemCreate", probability=1.0), ev.Alloc("a", PAGE, expect="oom"), host_limit=0).ok
    assert run(ev.Alloc("a", PAGE), host_limit=0).ok


def test_a_sticky_error_ends_the_replay_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from memx.replay.driver import Driver

    def lost(self: Driver, *_arguments: Any) -> None:
        raise memx.DriverError("gone", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuLaunchKernel")

    monkeypatch.setattr(Driver, "stamp", lost)
    result = run(ev.Alloc("a", PAGE), kernel(writes="a"), ev.Check("frees", equals=99))
    assert not result.ok
    assert result.failed_event == 2
    assert result.failed_expectations == 1


CAPTURED = [
    ev.Stream(1, "nonblocking"),
    ev.Alloc("a", PAGE, stream=1),
    kernel(writes="a", stream=1),
    ev.Capture("begin", 1),
    ev.Alloc("b", PAGE, stream=1),
    kernel(reads="a", writes="b", stream=1),
    kernel(reads="b", writes="a", stream=1),
    ev.Free("b"),
]


def test_captured_work_has_happened_after_the_capture() -> None:
    result = run(
        *CAPTURED,
        ev.Capture("end", 1),
        ev.CheckContents("a"),
        kernel(reads="a", stream=1),
        ev.Sync(),
        ev.Capture("release", 1),
        ev.Alloc("c", 7 * PAGE, stream=1),
        kernel(writes="c", stream=1),
    )
    assert result.failures == []
    assert result.ok


def test_an_aborted_capture_never_happened() -> None:
    result = run(*CAPTURED, ev.Capture("abort", 1), ev.CheckContents("a"), kernel(reads="a", stream=1))
    assert result.failures == []
    assert result.ok


buffers = st.sampled_from(range(6))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), buffers, st.integers(1, 3 * PAGE)),
        st.tuples(st.just("kernel"), st.sets(buffers, max_size=2), st.sets(buffers, max_size=2)),
    ),
    max_size=40,
)


def serial(program: list[Any]) -> list[ev.Event]:
    events: list[ev.Event] = []
    live: set[int] = set()
    for step in program:
        if step[0] == "toggle":
            _, name, size = step
            events.append(ev.Free(name) if name in live else ev.Alloc(name, size))
            live ^= {name}
        else:
            reads, writes = (tuple(ev.Operand(name) for name in sorted(names & live)) for names in step[1:])
            events.append(ev.Kernel(reads, writes))
    return [*events, *(ev.CheckContents(name) for name in sorted(live))]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=steps, streams=st.integers(1, 3), reuse=st.sampled_from(["stream", "default", "mutual"]))
def test_ordered_programs_keep_their_contents(lazy: bool, program: list[Any], streams: int, reuse: str) -> None:
    limit = 16 * PAGE  # at most four operands of three pages, each of which may begin inside a page
    result = run(*spread(serial(program), streams), reuse=reuse, lazy=lazy, device_limit=limit)
    assert result.failures == []
    assert (result.mismatches, result.races) == (0, 0)
    assert result.peak_reserved_bytes <= limit
