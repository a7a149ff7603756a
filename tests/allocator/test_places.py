"""Where buffers are born, that moves are told, and that pins forbid them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

Make = Callable[..., _native.Resource]
READ, WRITE = 1, 2


def place_of(r: _native.Resource, address: int) -> str:
    return next(b[4] for b in r.blocks() if b[0] == address)


def test_placements(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=4)
    on_host = r.allocate(PAGE, placement="host")
    on_device = r.allocate(4 * PAGE, placement="device")
    spilled = r.allocate(PAGE)
    assert [place_of(r, a) for a in (on_host, on_device, spilled)] == ["host", "device", "host"]
    kernels.stamp(0, on_host, PAGE, 1 << 32)
    kernels.verify(0, on_host, PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    with pytest.raises(memx.OutOfMemoryError, match="placement"):
        r.allocate(PAGE, placement="device")
    with pytest.raises(memx.InvalidValueError, match="'prefer_device', 'device' or 'host'"):
        r.allocate(PAGE, placement="disk")
    with pytest.raises(memx.InvalidStateError, match="host"):
        resource(host=0).allocate(PAGE, placement="host")
    with pytest.raises(memx.InvalidValueError, match="lazy"):
        resource(lazy=True).allocate(PAGE, placement="host")


def test_births_are_as_planned(resource: Make) -> None:
    from memx.trace import events as ev

    events: list[ev.Event] = [ev.Alloc("used", 2 * PAGE), ev.Alloc("idle", 4 * PAGE), ev.Alloc("other", 2 * PAGE)]
    events += [ev.Kernel(reads=(ev.Operand("used"), ev.Operand("other")))] * 3
    births = memx.plan.plan_births(events, 4 * PAGE)
    r = resource(device=4, host=8)
    r.expect([((), False, bool(on_host)) for on_host in births.on_host])
    made = [r.allocate(n * PAGE) for n in (2, 4, 2)]
    assert [place_of(r, a) for a in made] == ["device", "host", "device"]
    assert place_of(r, r.allocate(PAGE)) == "host"  # nothing is said of this one, and the device is full


def test_hot_pages_change_places_with_cold_ones(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=8)
    cold, cool, hot = r.allocate(2 * PAGE), r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    for i, address in enumerate((cold, cool, hot)):
        kernels.stamp(0, address, 2 * PAGE, i + 1 << 32)
    assert place_of(r, hot) == "host"
    for address in (cool, hot):
        r.end_use(r.begin_use([(address, 0, 2 * PAGE, READ)], 0))
    kernels.synchronize()
    r.rebalance()
    r.check()
    assert [place_of(r, a) for a in (cold, cool, hot)] == ["host", "device", "device"]
    r.pin(hot)
    r.end_use(r.begin_use([(cold, 0, 2 * PAGE, READ)], 0))
    r.rebalance()
    assert [place_of(r, a) for a in (cold, cool, hot)] == ["device", "host", "device"]
    for i, address in enumerate((cold, cool, hot)):
        kernels.verify(0, address, 2 * PAGE, i + 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


@pytest.mark.parametrize("lazy", [False, True])
def test_pinned_pages_stay_where_they_are(resource: Make, lazy: bool) -> None:
    r = resource(device=4, host=8, lazy=lazy)
    tag = r.tag_id("t")
    a = r.allocate(2 * PAGE, 0, 0, "prefer_device", tag)
    r.end_use(r.begin_use([(a, 0, 2 * PAGE, WRITE)], 0))
    r.pin(a)
    before = r.generation(a)
    for move in (lambda: r.evict(a), lambda: r.pause(tag)):
        with pytest.raises(memx.InvalidStateError, match="pinned"):
            move()
    r.rebalance()
    assert r.generation(a) == before
    r.unpin(a)
    r.evict(a)
    assert r.generation(a) > before


def test_moves_are_told(simulated: None) -> None:
    told: list[tuple[int, int, str]] = []
    mr = memx.MemoryResource(0, device_limit=4 * PAGE, host_limit=32 * PAGE, lazy=True, page=PAGE)
    mr.on_move(told.extend)
    a, b = mr.allocate(3 * PAGE), mr.allocate(3 * PAGE)
    assert told == []
    with mr.resident(a):
        assert [(address, place) for address, _bytes, place in told] == [(int(a.handle), "device")]
        assert sum(n for _, n, _ in told) == 3 * PAGE
    told.clear()
    generation = mr.generation(a)
    with mr.resident(b):
        assert {place for address, _, place in told if address < int(b.handle)} == {"unbacked"}
        assert mr.generation(a) > generation
    mr.on_move(None)
    told.clear()
    with mr.resident(a):
        assert told == []
    a.close()
    b.close()


def test_a_listener_may_use_the_resource_and_may_fail(simulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    mr = memx.MemoryResource(0, device_limit=4 * PAGE, host_limit=32 * PAGE, page=PAGE)
    seen: list[int] = []

    def listener(moves: list[tuple[int, int, str]]) -> None:
        seen.append(mr.statistics()["migrated_out_bytes"])
        raise RuntimeError(f"{len(moves)} moved")

    mr.on_move(listener)
    with mr.allocate(2 * PAGE) as buffer:
        mr.evict(buffer)
    assert seen == [2 * PAGE]
    assert len(unraisable) == 1


@pytest.mark.parametrize("lazy", [False, True])
def test_a_paused_tag_takes_few_calls(resource: Make, kernels: Kernels, lazy: bool) -> None:
    r = resource(device=300, host=600, lazy=lazy)
    tag = r.tag_id("t")
    sizes = [(1 + i % 7) * PAGE for i in range(40)]
    buffers = [r.allocate(n, 0, 0, "prefer_device", tag) for n in sizes]
    for i, (address, n) in enumerate(zip(buffers, sizes, strict=True)):
        token = r.begin_use([(address, 0, n, WRITE)], 0)
        kernels.stamp(0, address, n, i + 1 << 32)
        r.end_use(token)
    kernels.synchronize()
    for _ in range(2):
        before = r.statistics()["driver_calls"]
        r.pause(tag)
        r.check()
        made = {name: n - before.get(name, 0) for name, n in r.statistics()["driver_calls"].items()}
        assert made.get("cuMemUnmap", 0) == 1
        assert made["cuMemcpyDtoHAsync"] <= 8
        assert made.get("cuMemHostAlloc", 0) <= 8
        out = np.empty(sizes[3], np.uint8)
        r.read(buffers[3], 0, out)
        assert np.array_equal(out, pattern(4 << 32, sizes[3]))
        r.resume(tag)
        for i, (address, n) in enumerate(zip(buffers, sizes, strict=True)):
            token = r.begin_use([(address, 0, n, READ | WRITE)], 0)
            kernels.verify(0, address, n, i + 1 << 32)
            kernels.stamp(0, address, n, i + 1 << 32)
            r.end_use(token)
        kernels.synchronize()
        assert kernels.mismatches == 0
    for address in buffers[::2]:  # parts of what is pinned together go one by one
        r.free(address)
        r.check()


def test_a_paused_tags_pages_serve_another(resource: Make) -> None:
    r = resource(device=16, host=0)
    one, two = r.tag_id("one"), r.tag_id("two")
    a = r.allocate(12 * PAGE, 0, 0, "device", one)
    before = r.statistics()["driver_calls"]
    r.pause(one, keep=False)
    b = r.allocate(12 * PAGE, 0, 0, "device", two)
    made = r.statistics()["driver_calls"]
    for name in ("cuMemCreate", "cuMemRelease"):
        assert made.get(name, 0) == before.get(name, 0)
    with pytest.raises(memx.OutOfMemoryError):
        r.resume(one)
    r.pause(two, keep=False)
    r.resume(one)
    assert r.statistics()["driver_calls"]["cuMemCreate"] == before["cuMemCreate"]
    r.free(a)
    r.free(b)


def test_a_tag_keeps_to_its_share_of_the_host(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=32, lazy=True)
    tag = r.tag_id("t")
    r.limit_host(tag, 3 * PAGE)

    def use(address: int, seed: int, mode: int) -> None:
        token = r.begin_use([(address, 0, 2 * PAGE, mode)], 0)
        (kernels.stamp if mode == WRITE else kernels.verify)(0, address, 2 * PAGE, seed << 32)
        r.end_use(token)
        kernels.synchronize()
        r.check()

    a, b = (r.allocate(2 * PAGE, 0, 0, "prefer_device", tag) for _ in range(2))
    c, d = (r.allocate(2 * PAGE) for _ in range(2))
    for seed, address in enumerate((a, b, c, d), 1):
        use(address, seed, WRITE)
    faulted = r.statistics()["faulted_bytes"]
    use(b, 2, READ)  # a is on the host; b may not go there too, so c went
    assert r.statistics()["faulted_bytes"] == faulted
    for seed, address in ((3, c), (4, d), (1, a), (2, b)):
        use(address, seed, READ)
    assert kernels.mismatches == 0
    r.free(a)
    r.free(b)
    r.limit_host(tag, 0)
    e = r.allocate(4 * PAGE, 0, 0, "prefer_device", tag)
    r.end_use(r.begin_use([(e, 0, 4 * PAGE, WRITE)], 0))
    with pytest.raises(memx.OutOfMemoryError, match="limit_host"):
        r.begin_use([(c, 0, PAGE, READ)], 0)
    r.limit_host(tag, None)
    use(c, 3, READ)
    assert kernels.mismatches == 0


def test_an_eager_tag_keeps_to_its_share_too(resource: Make) -> None:
    r = resource(device=4, host=32)
    tag = r.tag_id("t")
    r.limit_host(tag, 3 * PAGE)
    a = r.allocate(3 * PAGE, 0, 0, "prefer_device", tag)
    r.allocate(PAGE, 0, 0, "device")
    b = r.allocate(2 * PAGE, 0, 0, "prefer_device", tag)
    assert (place_of(r, a), place_of(r, b)) == ("device", "host")
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(2 * PAGE, 0, 0, "prefer_device", tag)
    with pytest.raises(memx.OutOfMemoryError, match="host"):
        r.evict(a)
    with pytest.raises(memx.OutOfMemoryError, match="limit_host"):
        r.pause(tag)
    assert place_of(r, r.allocate(2 * PAGE)) == "host"
    r.check()


def test_where_the_bytes_of_a_buffer_are(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=8)
    a, b = r.allocate(3 * PAGE - 100), r.allocate(2 * PAGE)
    assert r.residency(a) == (3 * PAGE - 100, 0, 0, 0)
    assert r.residency(b) == (0, 2 * PAGE, 0, 0)
    r.free(a)
    with pytest.raises(memx.InvalidStateError, match="not a live buffer"):
        r.residency(a)

    r = resource(device=4, host=8, lazy=True)
    tag = r.tag_id("t")
    c, d = r.allocate(3 * PAGE, 0, 0, "prefer_device", tag), r.allocate(3 * PAGE)
    assert r.residency(c) == (0, 0, 0, 3 * PAGE)

    def use(address: int, page: int) -> None:
        token = r.begin_use([(address, page * PAGE, PAGE, WRITE)], 0)
        kernels.stamp(0, address + page * PAGE, PAGE, 1 << 32)
        r.end_use(token)

    use(c, 0)
    use(c, 1)
    assert r.residency(c) == (2 * PAGE, 0, 0, PAGE)
    for page in range(3):
        use(d, page)  # for the third, one of the other's has to go
    assert r.residency(d) == (3 * PAGE, 0, 0, 0)
    assert r.residency(c) == (PAGE, PAGE, 0, PAGE)
    r.pause(tag)
    assert r.residency(c) == (0, 2 * PAGE, 0, PAGE)
    r.resume(tag)
    r.pause(tag, False)
    assert r.residency(c) == (0, 0, 0, 3 * PAGE)
    assert r.residency(0) == (0, 0, 0, 0)
