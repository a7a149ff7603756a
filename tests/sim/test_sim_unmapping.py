"""Memory taken away from work that still uses it, and memory that is taken away in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memx import sim

from .conftest import Streams
from .machine import NO_ACCESS, PAGE, Kernels, Range, access, call, isolated, properties
from .world import World, alias_of

pytestmark = pytest.mark.usefixtures("clean")

Case = Callable[[World], object]


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


def pool_memory_freed_on_another_stream(w: World) -> None:
    p = int(call("cuMemAllocAsync", 512, w.a))
    w.order(w.a, w.b)
    w.kernels("memx_touch", w.b, p, 512, 1)
    call("cuMemFreeAsync", p, w.a)


TAKEN = {
    unmapped_while_used: "unmap-under-use cuMemUnmap -1",
    unmapped_after_another_wait: "unmap-under-use cuMemUnmap -1",
    unmapped_after_an_early_event: "unmap-under-use cuMemUnmap -1",
    access_taken_under_use: "unmap-under-use cuMemSetAccess -1",
    pool_memory_freed_without_a_wait: "unmap-under-use cuMemFree -1",
    pool_memory_freed_on_another_stream: "race cuMemFreeAsync 1",
}


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.__name__)
def test_taking_memory_from_work_is_found(case: Case) -> None:
    """In a process of its own: the work that finds its memory gone fails the context."""
    out = isolated(
        f"""
from sim.conftest import Streams
from sim.test_sim_unmapping import *
pages = Range((1, 1))
{case.__name__}(World(Streams(), kernels, pages))
(race,) = sim.races()
print(race["kind"], race["second"]["name"], min(race["second"]["stream"], 1), race["first"]["name"])
"""
    )
    assert out.startswith(TAKEN[case])


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
