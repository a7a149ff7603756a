"""The race oracle: each planted race beside its correct twin."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest

from memx import sim

from .conftest import Streams
from .machine import HOST, LEGACY, PAGE, PER_THREAD, Kernels, Range, access, call, code, isolated, read
from .world import World, alias_of, host_function, in_thread

pytestmark = pytest.mark.usefixtures("clean")

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


def seen_in_memory_only(w: World) -> None:
    """It is complete in fact, as the processor can see, but no call has said so."""
    with Range((1,), HOST) as h:
        call("cuMemSetAccess", h.va, PAGE, [access(HOST)], 1)
        flag = ctypes.c_uint8.from_address(h.va)
        flag.value = 0
        w.kernels("memx_fill", w.a, h.va, 1, 1)
        while flag.value == 0:
            pass
        w.kernels("memx_touch", w.b, h.va, 1, 1)


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


RACES = [
    both_write, read_then_write, write_then_read, host_waits_for_another, last_byte_overlaps, event_before_the_work,
    wait_after_the_work, third_stream_the_wrong_way, legacy_against_nonblocking, two_blocking,
    per_thread_against_blocking, threads_with_their_own_default, through_an_alias, copy_of_what_is_written,
    synchronous_copy_of_what_is_written, fill_of_what_is_read, fill_then_nonblocking, rows_that_touch,
    atomics_against_a_read, seen_in_memory_only, event_wait_covers_only_its_past, context_event_too_early,
    destroyed_stream, gathered, pool_memory_used_elsewhere,
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
    assert isolated(script, strict_threads=True) == "1\n"


def test_findings_are_capped_and_counted(streams: Streams, kernels: Kernels) -> None:
    with Range((1,)) as r:
        w = World(streams, kernels, r)
        for i in range(1200):
            w.write(w.a if i % 2 else w.b, 0, 8)
        assert sim.race_count() == 1199
        assert len(sim.races()) == 1000
