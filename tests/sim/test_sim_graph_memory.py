"""Graphs that hold memory: what the oracle sees of it, limits, and programs that do with it what they like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

from memx import sim

from .conftest import Streams
from .machine import PAGE, Kernels, call, code, isolated

pytestmark = pytest.mark.usefixtures("clean")

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
AUTO_FREE = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
ATTRIBUTES = driver.CUgraphMem_attribute


def used(device: int = 0) -> tuple[int, int]:
    """What graphs use, and what is kept for them."""
    return tuple(  # type: ignore[return-value]
        int(call("cuDeviceGetGraphMemAttribute", device, name))
        for name in (ATTRIBUTES.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, ATTRIBUTES.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
    )


class Recorded:
    """A graph that two streams recorded, forked at its start, and its executable graph."""

    def __init__(self, streams: Streams, kernels: Kernels, body: Callable[[Recorded], None], flags: int = 0) -> None:
        self.streams, self.kernels = streams, kernels
        self.a, self.b = streams.nonblocking(), streams.nonblocking()
        self.va = 0
        call("cuStreamBeginCapture", self.a, RELAXED)
        streams.order(self.a, self.b)
        body(self)
        streams.order(self.b, self.a)
        self.graph = call("cuStreamEndCapture", self.a)
        self.executable = call("cuGraphInstantiate", self.graph, flags)

    def allocate(self, stream: Any, count: int = PAGE) -> int:
        self.va = int(call("cuMemAllocAsync", count, stream))
        return self.va

    def touch(self, stream: Any, write: int = 1) -> None:
        self.kernels("memx_touch", stream, self.va, PAGE, write)

    def free(self, stream: Any) -> None:
        call("cuMemFreeAsync", self.va, stream)

    def launch(self, stream: Any = None) -> None:
        call("cuGraphLaunch", self.executable, self.a if stream is None else stream)

    def close(self) -> None:
        call("cuCtxSynchronize")
        call("cuGraphExecDestroy", self.executable)
        call("cuGraphDestroy", self.graph)


@pytest.fixture
def record(streams: Streams, kernels: Kernels) -> Iterator[Callable[..., Recorded]]:
    made: list[Recorded] = []

    def graph(body: Callable[[Recorded], None], flags: int = 0) -> Recorded:
        made.append(Recorded(streams, kernels, body, flags))
        return made[-1]

    yield graph
    for one in made:
        one.close()
    call("cuDeviceGraphMemTrim", 0)
    assert used() == (0, 0)


def in_order(g: Recorded) -> None:
    g.allocate(g.a)
    g.streams.order(g.a, g.b)
    g.touch(g.b)
    g.streams.order(g.b, g.a)
    g.free(g.a)


def not_after_the_allocation(g: Recorded) -> None:
    g.allocate(g.a)
    g.touch(g.b)
    g.streams.order(g.b, g.a)
    g.free(g.a)


def not_before_the_free(g: Recorded) -> None:
    g.allocate(g.a)
    g.streams.order(g.a, g.b)
    g.touch(g.b)
    g.free(g.a)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (in_order, []),
        (not_after_the_allocation, [("race", "cuMemAllocAsync", "memx_touch")]),
        (not_before_the_free, [("race", "memx_touch", "cuMemFreeAsync")]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_uses_within_a_graph_are_ordered(body: Any, found: list[Any]) -> None:
    """In a process of its own: a node that finds its memory gone fails the context."""
    out = isolated(
        f"""
from sim.conftest import Streams
from sim.test_sim_graph_memory import *
streams = Streams()
g = Recorded(streams, kernels, {body.__name__})
g.launch()
print([(race["kind"], race["first"]["name"], race["second"]["name"]) for race in sim.races()])
"""
    )
    assert out == f"{found}\n"


def kept(g: Recorded) -> None:
    g.allocate(g.a)
    g.touch(g.a)


def test_uses_after_the_launch_are_ordered(record: Any, streams: Streams) -> None:
    g = record(kept)
    g.launch()
    g.touch(g.a)
    streams.order(g.a, g.b)
    g.touch(g.b)
    g.free(g.b)
    streams.order(g.b, g.a)
    g.launch()
    g.free(g.a)
    assert sim.races() == []


def test_the_next_launch_follows_the_free(record: Any, streams: Streams) -> None:
    g = record(kept)
    g.launch()
    streams.order(g.a, g.b)
    g.free(g.b)
    g.launch()
    g.free(g.a)
    call("cuCtxSynchronize")
    (first, *_) = sim.races()
    assert (first["kind"], first["first"]["name"], first["second"]["name"]) == (
        "race",
        "cuMemFreeAsync",
        "cuMemAllocAsync",
    )


_OUTSIDE = """
from sim.conftest import Streams
from sim.test_sim_graph_memory import *
g = Recorded(Streams(), kernels, {body})
{steps}
g.touch(g.a, 0)
print([(race["kind"], race["first"]["name"], race["second"]["name"]) for race in sim.races()])
print(code("cuStreamSynchronize", g.a))
"""


@pytest.mark.parametrize(
    ("body", "steps", "first"),
    [
        ("kept", "", "never allocated"),
        ("kept", "g.launch(); g.free(g.a)", "cuMemFreeAsync"),
        ("kept", "g.launch(); call('cuStreamSynchronize', g.a); call('cuMemFree', g.va)", "cuMemFree"),
        ("in_order", "g.launch()", "cuMemFreeAsync"),
    ],
)
def test_uses_outside_its_lifetime_are_found_and_fail(body: str, steps: str, first: str) -> None:
    out = isolated(_OUTSIDE.format(body=body, steps=steps))
    assert out == f"{[('outside-lifetime', first, 'memx_touch')]}\nILLEGAL_ADDRESS\n"


def test_pool_memory_has_a_lifetime_too() -> None:
    out = isolated(
        """
s, t = call("cuStreamCreate", NON_BLOCKING), call("cuStreamCreate", NON_BLOCKING)
p = int(call("cuMemAllocAsync", PAGE, s))
call("cuMemFreeAsync", p, s)
sim.hold(t)
sim.hold(s)
q = int(call("cuMemAllocAsync", PAGE, s))
call("cuMemFreeAsync", q, s)
kernels("memx_touch", t, q, PAGE, 1)
print([(race["kind"], race["first"]["name"], race["first"]["index"]) for race in sim.races()])
"""
    )
    assert out == "[('outside-lifetime', 'cuMemFreeAsync', 4)]\n"


def test_freed_at_once_while_its_allocation_is_queued() -> None:
    out = isolated(
        """
from sim.conftest import Streams
from sim.test_sim_graph_memory import *
g = Recorded(Streams(), kernels, lambda g: g.allocate(g.a) and None)
sim.hold(g.a)
g.launch()
call("cuMemFree", g.va)
print([(race["kind"], race["first"]["name"]) for race in sim.races()], used())
sim.clear_races()
g.launch()
kernels("memx_stamp", g.a, g.va, PAGE, 9, 0)
sim.release(g.a)
call("cuStreamSynchronize", g.a)
print((read(g.va, PAGE) == pattern(PAGE, 9)).all(), sim.races(), used())
call("cuMemFree", g.va)
print(used(), code("cuMemFree", g.va))
"""
    )
    unmapped = [("unmap-under-use", "cuMemAllocAsync")]
    assert out == f"{unmapped} (0, {PAGE})\nTrue [] ({PAGE}, {PAGE})\n(0, {PAGE}) INVALID_VALUE\n"


def test_a_launch_without_room_takes_nothing(record: Any, kernels: Kernels) -> None:
    def body(g: Recorded) -> None:
        g.allocate(g.a, PAGE)
        g.allocate(g.a, 600 << 20)

    g = record(body)
    free = call("cuMemGetInfo")[0]
    other = call("cuMemAlloc", 500 << 20)
    assert code("cuGraphLaunch", g.executable, g.a) == "OUT_OF_MEMORY"
    assert used() == (0, PAGE)
    call("cuMemFree", other)
    g.launch()
    assert call("cuMemGetInfo")[0] == free - (600 << 20) - PAGE
    assert code("cuMemAlloc", 500 << 20) == "OUT_OF_MEMORY"
    for node in call("cuGraphGetNodes", g.graph, 2)[0]:
        call("cuMemFreeAsync", call("cuGraphMemAllocNodeGetParams", node).dptr, g.a)
    call("cuStreamSynchronize", g.a)
    assert code("cuMemAlloc", 500 << 20) == "OUT_OF_MEMORY"  # kept for graphs until it is trimmed
    call("cuDeviceGraphMemTrim", 0)
    assert call("cuMemGetInfo")[0] == free


def test_another_context_has_nothing_of_it() -> None:
    out = isolated(
        """
from sim.conftest import Streams
from sim.test_sim_graph_memory import *
other = call("cuCtxCreate", None, 0, 0)
g = Recorded(Streams(), kernels, lambda g: g.allocate(g.a) and None)
g.launch()
call("cuCtxDestroy", other)
print(code("cuMemFree", g.va), used(), code("cuGraphDestroy", g.graph), code("cuGraphExecDestroy", g.executable))
call("cuDeviceGraphMemTrim", 0)
print(sim.usage()["device_bytes"], int(call("cuMemAlloc", PAGE)) == g.va)
"""
    )
    assert out == f"INVALID_VALUE (0, {PAGE}) SUCCESS SUCCESS\n[0] True\n"


def test_accounting_only_knows_graph_memory() -> None:
    out = isolated(
        """
from sim.conftest import Streams
from sim.test_sim_graph_memory import *
g = Recorded(Streams(), kernels, in_order)
g.launch()
print(code("cuStreamSynchronize", g.a), used(), sim.races())
""",
        accounting_only=True,
    )
    assert out == f"SUCCESS (0, {PAGE}) []\n"


STEPS = st.lists(
    st.tuples(st.sampled_from(["launch", "free", "free_now", "trim", "again"]), st.integers(0, 3)), max_size=20
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), automatic=st.booleans())
def test_any_program_is_answered_as_documented(
    kernels: Kernels, steps: list[tuple[str, int]], sizes: list[int], automatic: bool
) -> None:
    """Graphs of one allocation each, against a model of what is live, used and kept."""
    flags = AUTO_FREE if automatic else 0
    with Streams() as streams:
        graphs = [
            Recorded(streams, kernels, lambda g, size=size: g.allocate(g.a, size * PAGE) and None, flags)
            for size in sizes
        ]
        live: set[int] = set()
        idle: Counter[int] = Counter()
        for step, number in steps:
            at = number % len(sizes)
            g, size = graphs[at], sizes[at]
            if step == "launch":
                refused = at in live and not automatic
                assert code("cuGraphLaunch", g.executable, g.a) == ("INVALID_VALUE" if refused else "SUCCESS")
                if at not in live:
                    idle[size] -= idle[size] > 0
                    live.add(at)
                kernels("memx_stamp", g.a, g.va, size * PAGE, 3, 0)
            elif step in ("free", "free_now"):
                call("cuStreamSynchronize", g.a)
                answer = code("cuMemFreeAsync", g.va, g.a) if step == "free" else code("cuMemFree", g.va)
                assert answer == ("SUCCESS" if at in live else "INVALID_VALUE")
                idle[size] += at in live
                live.discard(at)
            elif step == "trim":
                call("cuDeviceGraphMemTrim", 0)
                idle.clear()
            else:
                call("cuGraphExecDestroy", g.executable)
                g.executable = call("cuGraphInstantiate", g.graph, flags)
            call("cuStreamSynchronize", g.a)
            now = sum(sizes[other] for other in live) * PAGE
            assert used() == (now, now + sum(size * count for size, count in idle.items()) * PAGE)
        assert sim.races() == []
        for at in live:
            call("cuMemFree", graphs[at].va)
        for g in graphs:
            g.close()
    call("cuDeviceGraphMemTrim", 0)
    assert used() == (0, 0)
