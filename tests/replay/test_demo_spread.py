"""A trace spread over streams keeps every dependency of the serial one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.demo import DEMO_TRACE
from memx.demo.spread import spread
from memx.trace import events as ev
from memx.trace import read

BUFFERS = range(4)
subsets = st.sets(st.sampled_from(BUFFERS))


def ordered_before(events: list[ev.Event]) -> tuple[list[ev.Kernel], list[set[int]]]:
    """The kernels, and for each the indices of those that the streams and waits put before it."""
    kernels: list[ev.Kernel] = []
    before: list[set[int]] = []
    done: dict[int, set[int]] = {}
    for event in events:
        if isinstance(event, ev.Wait):
            done.setdefault(event.stream, set()).update(done.get(event.on, set()))
        elif isinstance(event, ev.Kernel):
            stream = done.setdefault(event.stream, set())
            before.append(set(stream))
            stream.add(len(kernels))
            kernels.append(event)
    return kernels, before


def conflicts(first: ev.Kernel, second: ev.Kernel) -> bool:
    read, written = ({operand.id for operand in part} for part in (first.reads, first.writes))
    read_later, written_later = ({operand.id for operand in part} for part in (second.reads, second.writes))
    return bool(written & (read_later | written_later) or read & written_later)


def operands(names: set[int]) -> tuple[ev.Operand, ...]:
    return tuple(ev.Operand(name) for name in sorted(names))


@given(steps=st.lists(st.tuples(subsets, subsets), max_size=12), streams=st.integers(1, 4))
def test_every_conflict_is_ordered(steps: list[tuple[set[int], set[int]]], streams: int) -> None:
    serial: list[ev.Event] = [ev.Alloc(name, 512) for name in BUFFERS]
    serial += [ev.Kernel(operands(read), operands(written)) for read, written in steps]
    kernels, before = ordered_before(list(spread(serial, streams)))
    assert [(kernel.reads, kernel.writes) for kernel in kernels] == [
        (operands(read), operands(written)) for read, written in steps
    ]
    for later in range(len(kernels)):
        for earlier in range(later):
            if conflicts(kernels[earlier], kernels[later]):
                assert earlier in before[later]


@pytest.mark.parametrize("streams", [2, 4])
def test_every_stream_of_a_buffer_is_recorded(streams: int) -> None:
    told: dict[ev.Id, set[int]] = {}
    used = 0
    for event in spread(read(DEMO_TRACE), streams):
        if isinstance(event, ev.Alloc):
            told[event.id] = {event.stream}
        elif isinstance(event, ev.RecordStream):
            assert event.stream not in told[event.id]
            told[event.id].add(event.stream)
        elif isinstance(event, ev.Kernel):
            for operand in event.reads + event.writes:
                assert event.stream in told[operand.id]
                used += 1
    assert used > 1000
