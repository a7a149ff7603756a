"""Events: of streams, of contexts, and the time between two."""

from __future__ import annotations

import time
from typing import Any

import pytest
from cuda.bindings import driver

from .api import DISABLE_TIMING, NON_BLOCKING, Gate, call, code
from .conftest import Streams

BLOCKING_SYNC = int(driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC)
INTERPROCESS = int(driver.CUevent_flags.CU_EVENT_INTERPROCESS)
EXTERNAL = 1


def context_call(function: str, *arguments: Any) -> Any:
    """A call that older drivers do not have."""
    try:
        return call(function, *arguments)
    except RuntimeError:
        pytest.skip(f"this driver has no {function}")


@pytest.mark.parametrize("flags", [0, BLOCKING_SYNC, DISABLE_TIMING, DISABLE_TIMING | BLOCKING_SYNC])
def test_an_event_never_recorded_is_complete(flags: int, streams: Streams) -> None:
    """cuEventRecord: before the first, an event is an empty set of work."""
    event, stream = streams.event(flags), streams.nonblocking()
    assert code("cuEventQuery", event) == "SUCCESS"
    call("cuEventSynchronize", event)
    with Gate(stream):
        call("cuStreamWaitEvent", streams.nonblocking(), event, 0)
        assert code("cuEventQuery", event) == "SUCCESS"


@pytest.mark.parametrize("flags", [0x100, INTERPROCESS])
def test_flags_of_events(flags: int) -> None:
    """cuEventCreate: flags that exist; an interprocess event takes no times."""
    assert code("cuEventCreate", flags) == "INVALID_VALUE"


def test_an_event_is_ready_when_its_work_is(streams: Streams) -> None:
    """cuEventQuery: not ready while any captured work is incomplete."""
    stream = streams.nonblocking()
    with Gate(stream) as gate:
        event = streams.recorded(stream)
        assert code("cuEventQuery", event) == "NOT_READY"
        gate.open()
        call("cuEventSynchronize", event)
        assert code("cuEventQuery", event) == "SUCCESS"


def test_times_that_are_not_there(streams: Streams) -> None:
    """cuEventElapsedTime: of events that were recorded, are complete, and were made to take times."""
    stream = streams.nonblocking()
    a, b, untimed = streams.event(), streams.event(), streams.event(DISABLE_TIMING)
    assert code("cuEventElapsedTime", a, b) == "INVALID_HANDLE"
    call("cuEventRecord", a, stream)
    assert code("cuEventElapsedTime", a, b) == "INVALID_HANDLE"
    with Gate(stream):
        call("cuEventRecord", b, stream)
        call("cuEventRecord", untimed, stream)
        assert code("cuEventElapsedTime", a, b) == "NOT_READY"
    call("cuStreamSynchronize", stream)
    assert code("cuEventElapsedTime", a, untimed) == "INVALID_HANDLE"
    assert code("cuEventElapsedTime", untimed, b) == "INVALID_HANDLE"
    assert call("cuEventElapsedTime", a, b) >= 0


def test_times_are_those_of_the_work(streams: Streams) -> None:
    """cuEventElapsedTime: at least what a clock of the host saw pass between the two."""
    stream = streams.nonblocking()
    a = streams.recorded(stream)
    call("cuEventSynchronize", a)
    began = time.perf_counter()
    with Gate(stream):
        b = streams.recorded(stream)
        while time.perf_counter() < began + 0.002:
            assert code("cuEventQuery", b) == "NOT_READY"
        passed = time.perf_counter() - began
    call("cuEventSynchronize", b)
    assert call("cuEventElapsedTime", a, b) >= 0.99 * 1000 * passed
    assert call("cuEventElapsedTime", b, a) <= -0.99 * 1000 * passed


def test_events_and_streams_of_other_contexts(streams: Streams) -> None:
    """cuEventRecord: event and stream are of one context; cuStreamWaitEvent: they need not be."""
    stream = streams.nonblocking()
    other = call("cuCtxCreate", None, 0, 0)
    event = call("cuEventCreate", DISABLE_TIMING)
    theirs = call("cuStreamCreate", NON_BLOCKING)
    assert code("cuEventRecord", event, stream) == "INVALID_HANDLE"
    call("cuEventRecord", event, theirs)
    call("cuStreamWaitEvent", stream, event, 0)
    call("cuStreamDestroy", theirs)
    call("cuEventDestroy", event)
    call("cuCtxDestroy", other)


def test_external_is_for_captures(streams: Streams) -> None:
    """cuEventRecordWithFlags, cuStreamWaitEvent: the external flag is invalid outside of stream capture."""
    stream = streams.nonblocking()
    event = streams.recorded(stream)
    assert code("cuEventRecordWithFlags", event, stream, EXTERNAL) in {"INVALID_VALUE", "ILLEGAL_STATE"}
    assert code("cuStreamWaitEvent", stream, event, EXTERNAL) in {"INVALID_VALUE", "ILLEGAL_STATE"}


def test_a_context_event_stands_for_every_stream(device: Any, streams: Streams) -> None:
    """cuCtxRecordEvent: captures all activities of the context at the time of the call, and no later ones."""
    event = streams.event(DISABLE_TIMING)
    context_call("cuCtxRecordEvent", device.context, event)
    call("cuEventSynchronize", event)
    a, b = streams.nonblocking(), streams.blocking()
    for held, other in ((a, b), (b, a)):
        with Gate(held) as gate:
            call("cuCtxRecordEvent", device.context, event)
            call("cuStreamSynchronize", other)
            assert code("cuEventQuery", event) == "NOT_READY"
            gate.open()
            call("cuEventSynchronize", event)
            assert code("cuStreamQuery", held) == "SUCCESS"
    with Gate(a):
        assert code("cuEventQuery", event) == "SUCCESS"


def test_a_stream_can_wait_for_a_context_event(device: Any, streams: Streams) -> None:
    """cuCtxRecordEvent, cuStreamWaitEvent: the waiting stream follows all streams that were captured."""
    event = streams.event(DISABLE_TIMING)
    a, b = streams.nonblocking(), streams.nonblocking()
    with Gate(a) as gate:
        context_call("cuCtxRecordEvent", device.context, event)
        call("cuStreamWaitEvent", b, event, 0)
        later = streams.recorded(b)
        assert code("cuEventQuery", later) == "NOT_READY"
        gate.open()
        call("cuEventSynchronize", later)
        assert code("cuStreamQuery", a) == "SUCCESS"


def test_a_context_can_wait_for_an_event(device: Any, streams: Streams) -> None:
    """cuCtxWaitEvent: all future work of the context waits, of streams made later too."""
    a, b = streams.nonblocking(), streams.nonblocking()
    with Gate(a) as gate:
        event = streams.recorded(a)
        before = streams.recorded(b)
        call("cuEventSynchronize", before)
        context_call("cuCtxWaitEvent", device.context, event)
        later = [streams.recorded(b), streams.recorded(streams.nonblocking())]
        assert [code("cuEventQuery", one) for one in later] == ["NOT_READY", "NOT_READY"]
        gate.open()
        for one in later:
            call("cuEventSynchronize", one)


def test_an_event_of_another_context(device: Any, streams: Streams) -> None:
    """cuCtxRecordEvent: event and context are of one context."""
    event = streams.event(DISABLE_TIMING)
    other = call("cuCtxCreate", None, 0, 0)
    refused = _code_or_skip("cuCtxRecordEvent", other, event)
    call("cuCtxDestroy", other)
    assert refused == "INVALID_HANDLE"


def _code_or_skip(function: str, *arguments: Any) -> str:
    try:
        return code(function, *arguments)
    except RuntimeError:
        pytest.skip(f"this driver has no {function}")
