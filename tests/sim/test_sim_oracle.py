"""The race oracle: each planted race beside its correct twin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memx import sim

from .conftest import Streams
from .machine import (
    LEGACY,
    NO_ACCESS,
    PAGE,
    PER_THREAD,
    Kernels,
    Range,
    access,
    call,
    code,
    isolated,
    properties,
    read,
)
from .test_sim_order import host_function

pytestmark = pytest.mark.usefixtures("clean")


class World:
    """A mapped range, streams, and short names for what is done with them."""

    def __init__(self, streams: Streams, kernels: Kernels, r: Range) -> None:
        self.streams = streams
        self.kernels = kernels
        self.r = r
        self.va = r.va
        self.a = streams.nonblocking()
        self.b = streams.nonblocking()

    def write(self, stream: Any, start: int = 0, count: int = PAGE) -> None:
        self.kernels("memx_touch", stream, self.va + start, count, 1)

    def read(self, stream: Any, start: int = 0, count: int = PAGE) -> None:
        self.kernels("memx_touch", stream, self.va + start, count, 0)

    def order(self, first: Any, then: Any) -> None:
        self.streams.order(first, then)

    def sync(self, stream: Any) -> None:
        call("cuStreamSynchronize", stream)


Case = Callable[[World], object]


def both_write(w: World) -> None:
    w.write(w.a)
    w.write(w.b)


def ordered_writes(w: World) -> None:
    w.write(w.a)
    w.order(w.a, w.b)
    w.write(w.b)


def read_then_write(w: World) -> None:
    w.read(w.a)
    w.write(w.b)


def both_read(w: World) -> None:
    w.read(w.a)
    w.read(w.b)


def write_then_read(w: World) -> None:
    w.write(w.a)
    w.read(w.b)


def host_waits_between(w: World) -> None:
    w.write(w.a)
    w.sync(w.a)
    w.read(w.b)


def host_waits_for_another(w: World) -> None:
    w.write(w.a)
    w.sync(w.b)
    w.read(w.b)


def last_byte_overlaps(w: World) -> None:
    w.write(w.a, 0, 101)
    w.write(w.b, 100, 100)


def neighbours(w: World) -> None:
    w.write(w.a, 0, 100)
    w.write(w.b, 100, 100)


def event_before_the_work(w: World) -> None:
    event = w.streams.event()
    call("cuEventRecord", event, w.a)
    w.write(w.a)
    call("cuStreamWaitEvent", w.b, event, 0)
    w.write(w.b)


def event_recorded_again(w: World) -> None:
    event = w.streams.event()
    call("cuEventRecord", event, w.a)
    w.write(w.a)
    call("cuEventRecord", event, w.a)
    call("cuStreamWaitEvent", w.b, event, 0)
    w.write(w.b)


def wait_after_the_work(w: World) -> None:
    w.write(w.a)
    w.write(w.b)
    w.order(w.a, w.b)


def through_a_third_stream(w: World) -> None:
    c = w.streams.nonblocking()
    w.write(w.a)
    w.order(w.a, c)
    w.order(c, w.b)
    w.write(w.b)


def third_stream_the_wrong_way(w: World) -> None:
    c = w.streams.nonblocking()
    w.write(w.a)
    w.order(c, w.b)
    w.order(w.a, c)
    w.write(w.b)


def legacy_against_nonblocking(w: World) -> None:
    w.write(LEGACY)
    w.write(w.a)


def legacy_against_blocking(w: World) -> None:
    c = w.streams.blocking()
    w.write(c)
    w.write(LEGACY)
    w.read(c)
    w.read(PER_THREAD)
    w.write(LEGACY)


def two_blocking(w: World) -> None:
    w.write(w.streams.blocking())
    w.write(w.streams.blocking())


def two_blocking_with_legacy_between(w: World) -> None:
    w.write(w.streams.blocking())
    w.kernels("unheard_of", LEGACY)
    w.write(w.streams.blocking())


def per_thread_against_blocking(w: World) -> None:
    w.write(PER_THREAD)
    w.write(w.streams.blocking())


def threads_with_their_own_default(w: World) -> None:
    context = call("cuCtxGetCurrent")
    w.write(PER_THREAD)
    in_thread(lambda: (call("cuCtxSetCurrent", context), w.write(PER_THREAD)))


def threads_with_a_wait_between(w: World) -> None:
    context = call("cuCtxGetCurrent")
    w.write(PER_THREAD)
    w.sync(PER_THREAD)
    in_thread(lambda: (call("cuCtxSetCurrent", context), w.write(PER_THREAD)))


def through_an_alias(w: World) -> None:
    with alias_of(w) as alias:
        w.write(w.a)
        w.kernels("memx_touch", w.b, alias.va, PAGE, 0)


def through_an_alias_in_order(w: World) -> None:
    with alias_of(w) as alias:
        w.write(w.a)
        w.order(w.a, w.b)
        w.kernels("memx_touch", w.b, alias.va, PAGE, 0)


def copy_of_what_is_written(w: World) -> None:
    w.write(w.a, 0, 64)
    call("cuMemcpyDtoDAsync", w.va + 1024, w.va + 32, 64, w.b)


def copy_beside_what_is_written(w: World) -> None:
    w.write(w.a, 0, 64)
    call("cuMemcpyDtoDAsync", w.va + 1024, w.va + 64, 64, w.b)


def synchronous_copy_of_what_is_written(w: World) -> None:
    w.write(w.a)
    read(w.va, 8)


def synchronous_copy_after_a_wait(w: World) -> None:
    w.write(w.a)
    w.sync(w.a)
    read(w.va, 8)


def fill_of_what_is_read(w: World) -> None:
    w.read(w.a)
    call("cuMemsetD8Async", w.va + 8, 0, 1, w.b)


def fill_then_nonblocking(w: World) -> None:
    """The fill that has no stream in its name does not wait either."""
    call("cuMemsetD8", w.va, 0, PAGE)
    w.read(w.a)


def fill_then_wait(w: World) -> None:
    call("cuMemsetD8", w.va, 0, PAGE)
    w.sync(0)
    w.read(w.a)


def upload_then_nonblocking(w: World) -> None:
    data = np.zeros(8, np.uint8)
    call("cuMemcpyHtoD", w.va, data.ctypes.data, 8)
    w.read(w.a)


def rows_that_interleave(w: World) -> None:
    call("cuMemsetD2D8Async", w.va, 64, 0, 32, 8, w.a)
    call("cuMemsetD2D8Async", w.va + 32, 64, 0, 32, 8, w.b)


def rows_that_touch(w: World) -> None:
    call("cuMemsetD2D8Async", w.va, 64, 0, 33, 8, w.a)
    call("cuMemsetD2D8Async", w.va + 32, 64, 0, 32, 8, w.b)


def atomics_on_one_counter(w: World) -> None:
    for stream, start in ((w.a, 64), (w.b, 128)):
        w.kernels("memx_verify", stream, w.va + start, 64, 0, 0, w.va)


def atomics_against_a_read(w: World) -> None:
    w.kernels("memx_verify", w.a, w.va + 64, 64, 0, 0, w.va)
    w.read(w.b, 0, 8)


def query_says_done(w: World) -> None:
    w.write(w.a)
    while code("cuStreamQuery", w.a) == "NOT_READY":
        pass
    w.write(w.b)


def event_query_says_done(w: World) -> None:
    event = w.streams.event()
    w.write(w.a)
    call("cuEventRecord", event, w.a)
    while code("cuEventQuery", event) == "NOT_READY":
        pass
    w.write(w.b)


def query_not_asked(w: World) -> None:
    """It is complete in fact, but nobody has found out."""
    w.write(w.a)
    while sim.usage()["events"] < 0:
        pass
    w.write(w.b)


def event_wait_covers_only_its_past(w: World) -> None:
    event = w.streams.event()
    w.write(w.a, 0, 64)
    call("cuEventRecord", event, w.a)
    w.write(w.a, 64, 64)
    call("cuEventSynchronize", event)
    w.write(w.b, 0, 128)


def context_event(w: World) -> None:
    event = w.streams.event()
    w.write(w.a)
    call("cuCtxRecordEvent", call("cuCtxGetCurrent"), event)
    call("cuStreamWaitEvent", w.b, event, 0)
    w.write(w.b)


def context_event_too_early(w: World) -> None:
    event = w.streams.event()
    call("cuCtxRecordEvent", call("cuCtxGetCurrent"), event)
    w.write(w.a)
    call("cuStreamWaitEvent", w.b, event, 0)
    w.write(w.b)


def context_wait(w: World) -> None:
    event = w.streams.event()
    w.write(w.a)
    call("cuEventRecord", event, w.a)
    call("cuCtxWaitEvent", call("cuCtxGetCurrent"), event)
    w.write(w.b)


def context_wait_then_a_new_stream(w: World) -> None:
    event = w.streams.event()
    w.write(w.a)
    call("cuEventRecord", event, w.a)
    call("cuCtxWaitEvent", call("cuCtxGetCurrent"), event)
    w.write(w.streams.nonblocking())


def destroyed_stream(w: World) -> None:
    """Destroying a stream is not waiting for it, and its handle's next owner is another stream."""
    gone = call("cuStreamCreate", 1)
    w.write(gone)
    call("cuStreamDestroy", gone)
    w.write(w.streams.nonblocking())


def destroyed_stream_waited_for(w: World) -> None:
    gone = call("cuStreamCreate", 1)
    w.write(gone)
    call("cuStreamDestroy", gone)
    call("cuCtxSynchronize")
    w.write(w.streams.nonblocking())


def destroyed_blocking_stream_and_legacy(w: World) -> None:
    gone = call("cuStreamCreate", 0)
    w.write(gone)
    call("cuStreamDestroy", gone)
    w.write(LEGACY)


def host_function_tells(w: World) -> None:
    told = threading.Event()
    w.write(w.a)
    call("cuLaunchHostFunc", w.a, *host_function(told.set))
    told.wait()
    w.write(w.b)


def gathered(w: World) -> None:
    w.kernels("memx_copy", w.a, w.va, w.va + 512, 8)
    w.sync(w.a)
    table = np.array([w.va + 4096, w.va + 8192], np.uint64)
    call("cuMemcpyHtoD", w.va, table.ctypes.data, 16)
    w.kernels("memx_gather", w.a, w.va, 2, 64, 1)
    w.read(w.b, 8192 + 63, 1)


def gathered_beside(w: World) -> None:
    table = np.array([w.va + 4096, w.va + 8192], np.uint64)
    call("cuMemcpyHtoD", w.va, table.ctypes.data, 16)
    w.kernels("memx_gather", w.a, w.va, 2, 64, 1)
    w.read(w.b, 8192 + 64, 1)


def pool_memory_used_elsewhere(w: World) -> None:
    p = int(call("cuMemAllocAsync", 512, w.a))
    w.kernels("memx_touch", w.b, p, 512, 1)
    w.order(w.b, w.a)
    call("cuMemFreeAsync", p, w.a)


def pool_memory_in_order(w: World) -> None:
    p = int(call("cuMemAllocAsync", 512, w.a))
    w.order(w.a, w.b)
    w.kernels("memx_touch", w.b, p, 512, 1)
    w.order(w.b, w.a)
    call("cuMemFreeAsync", p, w.a)


def pool_memory_freed_under_use(w: World) -> None:
    p = int(call("cuMemAllocAsync", 512, w.a))
    w.order(w.a, w.b)
    w.kernels("memx_touch", w.b, p, 512, 1)
    sim.hold(w.b)
    call("cuMemFreeAsync", p, w.a)
    sim.release(w.b)


def in_thread(body: Callable[[], object]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def alias_of(w: World) -> Range:
    alias = Range((), room=1)
    call("cuMemMap", alias.va, PAGE, 0, w.r.handles[0], 0)
    call("cuMemSetAccess", alias.va, PAGE, [access()], 1)
    return alias


RACES = [
    both_write, read_then_write, write_then_read, host_waits_for_another, last_byte_overlaps, event_before_the_work,
    wait_after_the_work, third_stream_the_wrong_way, legacy_against_nonblocking, two_blocking,
    per_thread_against_blocking, threads_with_their_own_default, through_an_alias, copy_of_what_is_written,
    synchronous_copy_of_what_is_written, fill_of_what_is_read, fill_then_nonblocking, rows_that_touch,
    atomics_against_a_read, query_not_asked, event_wait_covers_only_its_past, context_event_too_early,
    destroyed_stream, gathered, pool_memory_used_elsewhere, pool_memory_freed_under_use,
]  # fmt: skip
TWINS = [
    ordered_writes, both_read, host_waits_between, neighbours, event_recorded_again, through_a_third_stream,
    legacy_against_blocking, two_blocking_with_legacy_between, threads_with_a_wait_between,
    through_an_alias_in_order, copy_beside_what_is_written, synchronous_copy_after_a_wait, fill_then_wait,
    upload_then_nonblocking, rows_that_interleave, atomics_on_one_counter, query_says_done, event_query_says_done,
    context_event, context_wait, context_wait_then_a_new_stream, destroyed_stream_waited_for,
    destroyed_blocking_stream_and_legacy, host_function_tells, gathered_beside, pool_memory_in_order,
]  # fmt: skip


@pytest.mark.parametrize("case", RACES, ids=lambda case: case.__name__)
def test_a_race_is_found(case: Case, streams: Streams, kernels: Kernels) -> None:
    with Range((1, 1)) as r:
        case(World(streams, kernels, r))
        assert sim.race_count() == 1
        assert {race["kind"] for race in sim.races()} == {"race"}


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.__name__)
def test_its_correct_twin_is_silent(case: Case, streams: Streams, kernels: Kernels) -> None:
    with Range((1, 1)) as r:
        case(World(streams, kernels, r))
    assert sim.races() == []


def test_a_finding_names_both_operations(streams: Streams, kernels: Kernels) -> None:
    with Range((1, 1)) as r:
        w = World(streams, kernels, r)
        call("cuMemsetD8Async", w.va, 0, 100, w.a)
        w.read(w.a, 100, 50)
        kernels("memx_fill", w.b, w.va + 120, 7, 1)
        (race,) = sim.races()
        assert race["first"] == {
            "stream": int(call("cuStreamGetId", w.a)),
            "index": 2,
            "name": "memx_touch",
            "address": w.va + 100,
            "bytes": 50,
        }
        assert race["second"]["name"] == "memx_fill"
        assert race["second"]["stream"] == int(call("cuStreamGetId", w.b))
        assert (race["second"]["address"], race["second"]["bytes"]) == (w.va + 120, 7)
        assert race["second"]["index"] == 1


def unmapped_while_used(w: World) -> None:
    w.read(w.a)
    call("cuMemUnmap", w.va, PAGE)


def unmapped_after_a_wait(w: World) -> None:
    w.read(w.a)
    w.sync(w.a)
    call("cuMemUnmap", w.va, PAGE)


def unmapped_after_another_wait(w: World) -> None:
    w.read(w.a)
    w.sync(w.b)
    call("cuMemUnmap", w.va, PAGE)


def unmapped_after_an_early_event(w: World) -> None:
    event = w.streams.event()
    w.read(w.a)
    call("cuEventRecord", event, w.a)
    w.read(w.a)
    call("cuEventSynchronize", event)
    call("cuMemUnmap", w.va, PAGE)


def unmapped_after_a_context_wait(w: World) -> None:
    w.read(w.a)
    w.write(w.a)
    call("cuCtxSynchronize")
    call("cuMemUnmap", w.va, PAGE)


def unmapped_beside_the_work(w: World) -> None:
    w.read(w.a, PAGE, PAGE)
    call("cuMemUnmap", w.va, PAGE)


def unmapped_an_alias(w: World) -> None:
    """Work through one address does not mind that another address of the memory goes."""
    with alias_of(w) as alias:
        w.read(w.a)
        call("cuMemUnmap", alias.va, PAGE)


def access_taken_under_use(w: World) -> None:
    w.read(w.a)
    call("cuMemSetAccess", w.va, PAGE, [access(flags=NO_ACCESS)], 1)


def freed_after_its_own_wait(w: World) -> None:
    p = int(call("cuMemAlloc", 512))
    w.kernels("memx_touch", w.a, p, 512, 1)
    call("cuMemFree", p)


def pool_memory_freed_without_a_wait(w: World) -> None:
    p = int(call("cuMemAllocAsync", 512, w.a))
    w.kernels("memx_touch", w.a, p, 512, 1)
    call("cuMemFree", p)


@pytest.mark.parametrize(
    "case",
    [unmapped_while_used, unmapped_after_another_wait, unmapped_after_an_early_event, access_taken_under_use,
     pool_memory_freed_without_a_wait],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_taking_memory_from_work_is_found(case: Case) -> None:
    """In a process of its own: the work that finds its memory gone fails the context."""
    out = isolated(
        f"""
from sim.conftest import Streams
from sim.test_sim_oracle import *
case, World = {case.__name__}, World
with_range = Range((1, 1))
case(World(Streams(), kernels, with_range))
print(sim.race_count(), sim.races()[0]["kind"], sim.races()[0]["second"]["stream"], sim.races()[0]["first"]["name"])
"""
    )
    assert out.startswith("1 unmap-under-use -1 ")


@pytest.mark.parametrize(
    "case",
    [unmapped_after_a_wait, unmapped_after_a_context_wait, unmapped_beside_the_work, unmapped_an_alias,
     freed_after_its_own_wait],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_taking_idle_memory_is_silent(case: Case, streams: Streams, kernels: Kernels) -> None:
    with Range((1, 1)) as r:
        case(World(streams, kernels, r))
    assert sim.races() == []


def test_a_page_reused_at_another_address_remembers_its_past(streams: Streams, kernels: Kernels) -> None:
    with Range((1, 1), room=3) as r:
        w = World(streams, kernels, r)
        w.read(w.a)
        sim.hold(w.a)
        w.kernels("memx_touch", w.a, w.va + PAGE, PAGE, 1)
        call("cuMemMap", r.va + 2 * PAGE, PAGE, 0, r.handles[1], 0)
        call("cuMemSetAccess", r.va + 2 * PAGE, PAGE, [access()], 1)
        w.write(w.b, 2 * PAGE, PAGE)
        sim.release(w.a)
        assert [race["kind"] for race in sim.races()] == ["race"]


def test_new_memory_has_no_past(streams: Streams, kernels: Kernels) -> None:
    with Range((1,), room=2) as r:
        w = World(streams, kernels, r)
        w.write(w.a)
        w.sync(w.a)
        call("cuMemUnmap", r.va, PAGE)
        call("cuMemRelease", r.handles.pop())
        r.handles.append(call("cuMemCreate", PAGE, properties(), 0))
        call("cuMemMap", r.va, PAGE, 0, r.handles[0], 0)
        call("cuMemSetAccess", r.va, PAGE, [access()], 1)
        w.write(w.b)
    assert sim.races() == []


def test_each_thread_knows_what_it_waited_for_where_asked() -> None:
    script = """
s, t = call("cuStreamCreate", NON_BLOCKING), call("cuStreamCreate", NON_BLOCKING)
r = Range((1,))
def other():
    call("cuCtxSetCurrent", context)
    call("cuStreamSynchronize", s)
kernels("memx_touch", s, r.va, PAGE, 1)
thread = threading.Thread(target=other); thread.start(); thread.join()
kernels("memx_touch", t, r.va, PAGE, 1)
print(sim.race_count())
"""
    assert isolated(script) == "0\n"
    strict = "\nctypes.CDLL('libcuda.so.1').memxsim_set_thread_clocks(1)\ncall('cuInit', 0); context = set_current(); kernels = Kernels()"
    assert isolated(strict + script, start=False) == "1\n"


def test_findings_are_capped_and_counted(streams: Streams, kernels: Kernels) -> None:
    with Range((1,)) as r:
        w = World(streams, kernels, r)
        for i in range(1200):
            w.write(w.a if i % 2 else w.b, 0, 8)
        assert sim.race_count() == 1199
        assert len(sim.races()) == 1000


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
