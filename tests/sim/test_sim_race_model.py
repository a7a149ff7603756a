"""The race oracle against an independent model, over random programs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memx import sim

from .conftest import Streams
from .machine import LEGACY, PAGE, Kernels, Range, call

pytestmark = pytest.mark.usefixtures("clean")


class Model:
    """Happens-before as explicit sets: for every stream, the accesses that its next operation follows."""

    def __init__(self, blocking: list[bool]) -> None:
        self.blocking = blocking  # stream 0 is the legacy one
        self.past: list[frozenset[int]] = [frozenset()] * len(blocking)
        self.host: frozenset[int] = frozenset()
        self.accesses: list[tuple[int, int, bool]] = []
        self.races = 0

    def operation(self, stream: int) -> frozenset[int]:
        known = self.past[stream] | self.host
        if stream == 0:
            known = known.union(*(past for past, blocking in zip(self.past, self.blocking, strict=True) if blocking))
        elif self.blocking[stream]:
            known |= self.past[0]
        self.past[stream] = known
        return known

    def access(self, stream: int, start: int, stop: int, write: bool) -> None:
        before = self.operation(stream)
        for i, (other_start, other_stop, other_write) in enumerate(self.accesses):
            overlap = start < other_stop and other_start < stop
            self.races += overlap and (write or other_write) and i not in before
        self.past[stream] = before | {len(self.accesses)}
        self.accesses.append((start, stop, write))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_programs_against_a_model(kernels: Kernels, data: st.DataObject) -> None:
    sim.clear_races()
    with Streams() as made, Range((1, 1)) as r:
        kinds = data.draw(st.lists(st.booleans(), min_size=2, max_size=4))
        handles = [LEGACY, *(made.blocking() if blocking else made.nonblocking() for blocking in kinds)]
        model = Model([False, *kinds])
        events: list[tuple[Any, frozenset[int]]] = []
        for _ in range(data.draw(st.integers(5, 40))):
            s = data.draw(st.integers(0, len(handles) - 1))
            step = data.draw(st.sampled_from(["access"] * 4 + ["record", "wait", "wait", "sync", "sync_event"]))
            if step == "access":
                start = data.draw(st.integers(PAGE - 12, PAGE + 12))
                stop = start + data.draw(st.integers(1, 12))
                write = data.draw(st.booleans())
                model.access(s, start, stop, write)
                kernels("memx_touch", handles[s], r.va + start, stop - start, int(write))
            elif step == "record":
                event = made.event()
                call("cuEventRecord", event, handles[s])
                events.append((event, model.operation(s)))
            elif step == "sync":
                call("cuStreamSynchronize", handles[s])
                model.host |= model.past[s]
            elif events:
                event, known = events[data.draw(st.integers(0, len(events) - 1))]
                if step == "wait":
                    call("cuStreamWaitEvent", handles[s], event, 0)
                    model.past[s] = model.operation(s) | known
                else:
                    call("cuEventSynchronize", event)
                    model.host |= known
        assert (sim.race_count() > 0) == (model.races > 0)
    sim.clear_races()
