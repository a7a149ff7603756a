"""Copies that nobody waits for: out of what gives way next, in of what is used next, and those of a use's own parts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, ok, pattern

Make = Callable[..., _native.Resource]
READ, WRITE, BOTH = 1, 2, 3


def use(
    r: _native.Resource, kernels: Kernels, address: int, nbytes: int, mode: int, seed: int, stream: int = 0
) -> None:
    token = r.begin_use([(address, 0, nbytes, mode)], stream)
    if mode & WRITE:
        kernels.stamp(stream, address, nbytes, seed)
    else:
        kernels.verify(stream, address, nbytes, seed)
    r.end_use(token)


def verified(r: _native.Resource, kernels: Kernels, buffers: dict[int, tuple[int, int]]) -> None:
    """Each buffer (by address: bytes, seed) has its contents, wherever it is."""
    kernels.synchronize()
    assert kernels.mismatches == 0
    assert memx.sim.races() == []
    r.check()
    for address, (nbytes, seed) in buffers.items():
        out = np.empty(nbytes, np.uint8)
        r.read(address, 0, out)
        assert np.array_equal(out, pattern(seed, nbytes))


@contextmanager
def held(stream: int) -> Iterator[None]:
    """The stream stands still; at the end it must not have been waited for."""
    memx.sim.hold(stream)
    token = ok(driver.cuEventCreate(2))
    ok(driver.cuEventRecord(token, stream))
    yield
    (state,) = driver.cuEventQuery(token)
    assert state == driver.CUresult.CUDA_ERROR_NOT_READY, "something waited for the stream"
    memx.sim.release(stream)
    ok(driver.cuEventDestroy(token))


def moved(r: _native.Resource) -> tuple[int, int]:
    s = r.statistics()
    return s["migrated_in_bytes"] // PAGE, s["migrated_out_bytes"] // PAGE


# -- out, before the memory is needed


def test_what_gives_way_next_is_on_the_host_already(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=32, lazy=True, low_water=3 * PAGE, eviction="lru")
    pages = [r.allocate(PAGE) for _ in range(12)]
    for i in range(8):
        assert moved(r) == (0, max(0, i - 5))  # from the sixth on less than three pages are free
        use(r, kernels, pages[i], PAGE, WRITE, i + 1 << 32)
        kernels.synchronize()
    r.end_use(r.begin_use([(pages[7], 0, PAGE, READ)], 0))  # now the last one's work is known to be over
    before = moved(r)
    assert before == (0, 3)
    token = r.begin_use([(pages[8 + i], 0, PAGE, WRITE) for i in range(3)], 0)
    assert moved(r) == before  # nothing was copied for it
    for i in range(3):
        kernels.stamp(0, pages[8 + i], PAGE, 9 + i << 32)
    r.end_use(token)
    verified(r, kernels, {pages[i]: (PAGE, i + 1 << 32) for i in range(11)})


def test_what_is_written_since_is_copied_again(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=32, lazy=True, low_water=4 * PAGE, eviction="lru")
    pages = [r.allocate(PAGE) for _ in range(8)]
    for round_ in range(3):
        for i, address in enumerate(pages[:4]):
            use(r, kernels, address, PAGE, WRITE, i + 1 + 16 * round_ << 32)
            kernels.synchronize()
    assert moved(r)[1] > 4
    for i, address in enumerate(pages[4:]):
        use(r, kernels, address, PAGE, WRITE, i + 5 << 32)
    contents = {address: (PAGE, i + 33 << 32) for i, address in enumerate(pages[:4])}
    verified(r, kernels, contents | {address: (PAGE, i + 5 << 32) for i, address in enumerate(pages[4:])})


@pytest.mark.parametrize("excluded", [False, True])
def test_work_that_writes_follows_the_copy(resource: Make, kernels: Kernels, excluded: bool) -> None:
    r = resource(device=4, host=32, lazy=True, low_water=4 * PAGE)
    stream = kernels.stream()
    if excluded:
        r.exclude_stream(stream)
    a, b = r.allocate(2 * PAGE, stream), r.allocate(PAGE, stream)
    use(r, kernels, a, 2 * PAGE, WRITE, 1 << 32, stream)
    kernels.synchronize()
    memx.sim.hold(r.copy_stream())
    memx.sim.hold(stream)
    use(r, kernels, b, PAGE, WRITE, 2 << 32, stream)  # at its end the copy of `a` is queued, whose work is over
    assert moved(r)[1] == 2
    use(r, kernels, a, 2 * PAGE, READ, 1 << 32, stream)
    use(r, kernels, a, 2 * PAGE, WRITE, 3 << 32, stream)
    memx.sim.release(r.copy_stream())
    memx.sim.release(stream)
    verified(r, kernels, {a: (2 * PAGE, 3 << 32), b: (PAGE, 2 << 32)})
    r.evict(a)
    verified(r, kernels, {a: (2 * PAGE, 3 << 32)})
    r.free(a, stream)
    r.free(b, stream)
    kernels.destroy(stream)


def test_a_capture_waits_for_the_copy_of_what_it_writes(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=32, lazy=True, low_water=4 * PAGE)
    stream = kernels.stream()
    a, b = r.allocate(PAGE, stream), r.allocate(PAGE, stream)
    use(r, kernels, a, PAGE, WRITE, 1 << 32, stream)
    kernels.synchronize()
    memx.sim.hold(r.copy_stream())
    memx.sim.hold(stream)
    use(r, kernels, b, PAGE, WRITE, 2 << 32, stream)
    assert moved(r)[1] == 1
    memx.sim.release(stream)
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    use(r, kernels, a, PAGE, WRITE, 3 << 32, stream)
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, stream))
    verified(r, kernels, {a: (PAGE, 3 << 32)})
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))
    r.free(a, stream)
    r.free(b, stream)
    kernels.synchronize()
    kernels.destroy(stream)


def test_nothing_waits_for_copies_out(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=32, lazy=True, low_water=6 * PAGE)
    pages = [r.allocate(PAGE) for _ in range(8)]
    for i, address in enumerate(pages[:6]):
        use(r, kernels, address, PAGE, WRITE, i + 1 << 32)
    kernels.synchronize()
    with held(0), held(r.copy_stream()):
        use(r, kernels, pages[6], PAGE, WRITE, 7 << 32)
        use(r, kernels, pages[7], PAGE, WRITE, 8 << 32)
        for i, address in enumerate(pages):
            use(r, kernels, address, PAGE, READ, i + 1 << 32)
        assert moved(r)[1] == 6
    verified(r, kernels, {address: (PAGE, i + 1 << 32) for i, address in enumerate(pages)})


def test_limits_of_the_host_hold(resource: Make, kernels: Kernels) -> None:
    r = resource(device=6, host=4, lazy=True, low_water=6 * PAGE)
    tag = r.tag_id("t")
    r.limit_host(tag, PAGE)
    tagged = r.allocate(2 * PAGE, 0, 0, "prefer_device", tag)
    others = r.allocate(4 * PAGE)
    for _ in range(3):
        use(r, kernels, tagged, 2 * PAGE, WRITE, 1 << 32)
        use(r, kernels, others, 4 * PAGE, WRITE, 2 << 32)
        kernels.synchronize()
        r.end_use(r.begin_use([(others, 0, PAGE, READ)], 0))
        r.check()
    assert r.statistics()["host_bytes.peak"] <= 4 * PAGE
    verified(r, kernels, {tagged: (2 * PAGE, 1 << 32), others: (4 * PAGE, 2 << 32)})


def test_freed_while_it_is_copied(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=4, lazy=True, low_water=4 * PAGE)
    a, b = r.allocate(2 * PAGE), r.allocate(PAGE)
    use(r, kernels, a, 2 * PAGE, WRITE, 1 << 32)
    kernels.synchronize()
    memx.sim.hold(r.copy_stream())
    use(r, kernels, b, PAGE, WRITE, 2 << 32)
    r.free(a)
    r.check()
    c = r.allocate(4 * PAGE)
    use(r, kernels, c, 4 * PAGE, WRITE, 3 << 32)  # needs the host memory that the copy goes to
    verified(r, kernels, {b: (PAGE, 2 << 32), c: (4 * PAGE, 3 << 32)})
    r.free(b)
    r.free(c)
    kernels.synchronize()
    r.trim()
    assert r.statistics()["host_bytes.current"] == 0


# -- in, before the use


def told(sequence: list[int], count: int) -> list[tuple[list[tuple[int, bool]], bool, bool]]:
    return [([(i, False) for i, p in enumerate(sequence) if p == page], True, False) for page in range(count)]


CYCLE = [i % 40 for i in range(400)]


@pytest.mark.parametrize("mode", [READ, BOTH])
@pytest.mark.parametrize("knows", [True, False])
def test_what_comes_round_is_there_before(resource: Make, kernels: Kernels, knows: bool, mode: int) -> None:
    brought = {}
    for ahead in (0, 2):
        r = resource(device=32, host=64, lazy=True, low_water=ahead * PAGE, look_ahead=ahead * PAGE)
        if knows:
            r.expect(told(CYCLE, 40))
        pages = [r.allocate(PAGE) for _ in range(40)]
        for i, p in enumerate(CYCLE):
            use(r, kernels, pages[p], PAGE, mode if i >= 40 else WRITE, p + 1 << 32)
            kernels.synchronize()
        s = r.statistics()
        brought[ahead] = s["migrated_in_bytes"] // PAGE
        assert s["prefetched_used_bytes"] <= s["prefetched_bytes"] <= s["migrated_in_bytes"]
        if ahead:
            # All but what was needed before the order was seen to come round.
            assert s["prefetched_used_bytes"] >= (0.95 if knows else 0.8) * s["migrated_in_bytes"]
        verified(r, kernels, {address: (PAGE, p + 1 << 32) for p, address in enumerate(pages)})
    # Two of the 32 pages are lent to what comes next.
    assert brought[2] <= brought[0] * (40 - 30) / (40 - 32) + 4


def test_an_order_that_does_not_come_round_brings_nothing(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=32, lazy=True, low_water=2 * PAGE, look_ahead=2 * PAGE)
    pages = [r.allocate(PAGE) for _ in range(16)]
    rng = random.Random(5)
    for p in [*range(16), *rng.choices(range(16), k=200)]:
        use(r, kernels, pages[p], PAGE, WRITE, p + 1 << 32)
        kernels.synchronize()
    assert r.statistics()["prefetched_bytes"] == 0


def test_work_follows_the_copy_and_nobody_waits(resource: Make, kernels: Kernels) -> None:
    sequence = [0, 1, 2, 3, 4, 5, 0, 1]
    r = resource(device=6, host=16, lazy=True, look_ahead=2 * PAGE)
    r.expect(told(sequence, 6))
    pages = [r.allocate(PAGE) for _ in range(6)]
    for p in sequence[:4]:
        use(r, kernels, pages[p], PAGE, WRITE, p + 1 << 32)
    kernels.synchronize()
    r.evict(pages[0])
    with held(r.copy_in_stream()):
        for p in sequence[4:6]:
            use(r, kernels, pages[p], PAGE, WRITE, p + 1 << 32)
        assert r.statistics()["prefetched_bytes"] == PAGE  # there is room
        faulted = r.statistics()["faulted_bytes"]
        for p in sequence[6:]:
            use(r, kernels, pages[p], PAGE, READ, p + 1 << 32)
        assert r.statistics()["faulted_bytes"] == faulted
    assert r.statistics()["prefetched_used_bytes"] == PAGE
    verified(r, kernels, {address: (PAGE, p + 1 << 32) for p, address in enumerate(pages)})


def test_what_is_used_sooner_is_not_dropped(resource: Make, kernels: Kernels) -> None:
    sequence = [3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3]
    r = resource(device=3, host=16, lazy=True, look_ahead=2 * PAGE)
    r.expect(told(sequence, 4))
    pages = [r.allocate(PAGE) for _ in range(4)]
    for i, p in enumerate(sequence):
        use(r, kernels, pages[p], PAGE, WRITE if i < 4 else READ, p + 1 << 32)
        kernels.synchronize()
        if i < 7:  # 3 comes within four uses then, but everything else is used sooner
            assert moved(r) == (0, int(i > 2))
    assert moved(r) == (1, 2)
    assert r.statistics()["faulted_bytes"] == 4 * PAGE
    verified(r, kernels, {address: (PAGE, p + 1 << 32) for p, address in enumerate(pages)})


def test_the_oldest_stays_if_it_is_used_before_what_would_come_in_its_place(resource: Make, kernels: Kernels) -> None:
    r = resource(device=3, host=16, lazy=True, look_ahead=2 * PAGE, eviction="lru")
    r.expect([([(10, False)], True, False), ([(11, False)], True, False)])
    old, new, *others = [r.allocate(PAGE) for _ in range(4)]
    seeds = {address: i + 1 << 32 for i, address in enumerate((old, new, *others))}
    for address in (old, *others, new):
        use(r, kernels, address, PAGE, WRITE, seeds[address])
        kernels.synchronize()
        r.evict(address)
    for address in (old, *others):  # all that the device holds
        use(r, kernels, address, PAGE, READ, seeds[address])
    faulted = r.statistics()["faulted_bytes"]
    for address in (others[0], others[1], others[0], old, new):
        kernels.synchronize()
        use(r, kernels, address, PAGE, READ, seeds[address])
    assert r.statistics()["faulted_bytes"] == faulted
    assert r.statistics()["prefetched_used_bytes"] == PAGE
    verified(r, kernels, {address: (PAGE, seed) for address, seed in seeds.items()})


def test_read_and_moved_while_it_comes(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=8, lazy=True)
    a, b = r.allocate(2 * PAGE), r.allocate(2 * PAGE)
    for i, address in enumerate((a, b)):
        use(r, kernels, address, 2 * PAGE, WRITE, i + 1 << 32)
    kernels.synchronize()
    for address in (a, b):
        r.evict(address)
    with held(r.copy_in_stream()):
        for address in (a, b):
            r.prefetch(address, 0)
    memx.sim.hold(r.copy_in_stream())
    r.evict(a)
    r.prefetch(a, 0)
    out = np.empty(2 * PAGE, np.uint8)
    r.read(a, 0, out)
    assert np.array_equal(out, pattern(1 << 32, 2 * PAGE))
    memx.sim.hold(r.copy_in_stream())
    r.evict(b)
    r.prefetch(b, 0)
    r.free(b)
    r.check()
    c = r.allocate(2 * PAGE)
    use(r, kernels, c, 2 * PAGE, WRITE, 3 << 32)
    memx.sim.release(r.copy_in_stream())
    verified(r, kernels, {a: (2 * PAGE, 1 << 32), c: (2 * PAGE, 3 << 32)})


@settings(max_examples=60, deadline=None)
@given(
    uses=st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 2)), min_size=1, max_size=60),
    device=st.integers(3, 7),
    host=st.sampled_from([5, 12, 64]),
    low=st.integers(0, 6),
    ahead=st.integers(0, 6),
    knows=st.booleans(),
    policy=st.sampled_from(["cost", "lru", "clock"]),
)
def test_contents_last_however_copies_run_ahead(
    kernels: Kernels,
    uses: list[tuple[int, bool, int]],
    device: int,
    host: int,
    low: int,
    ahead: int,
    knows: bool,
    policy: str,
) -> None:
    r = _native.Resource(
        0,
        device * PAGE,
        host * PAGE,
        lazy=True,
        page=PAGE,
        eviction=policy,
        low_water=low * PAGE,
        look_ahead=ahead * PAGE,
    )
    if knows:
        r.expect(told([p for p, *_ in uses], 10))
    streams = [0, kernels.stream(), kernels.stream()]
    size = [PAGE + 700 if p % 3 == 0 else PAGE for p in range(10)]
    pages = [r.allocate(n) for n in size]
    seeds: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, (p, write, s) in enumerate(uses):
        stream = streams[s]
        if last.get(p, stream) != stream:
            kernels.order(stream, last[p])
            r.note_wait(stream, last[p])
        try:
            token = r.begin_use([(pages[p], 0, size[p], WRITE if write else READ)], stream)
        except memx.OutOfMemoryError:
            assert host == 5
            continue
        if write:
            seeds[p] = i + 1 << 32
            kernels.stamp(stream, pages[p], size[p], seeds[p])
        elif p in seeds:
            kernels.verify(stream, pages[p], size[p], seeds[p])
        r.end_use(token)
        last[p] = stream
        r.check()
    verified(r, kernels, {pages[p]: (size[p], seed) for p, seed in seeds.items()})
    s = r.statistics()
    assert s["reserved_bytes.peak"] <= device * PAGE
    assert s["host_bytes.peak"] <= host * PAGE
    r.close()
    for stream in streams[1:]:
        kernels.destroy(stream)


def test_eager_resources_have_no_such_pages(simulated: None) -> None:
    with pytest.raises(memx.InvalidValueError, match="lazy"):
        memx.MemoryResource(0, device_limit=4 * PAGE, page=PAGE, low_water="1p")
    with pytest.raises(memx.InvalidValueError, match="look_ahead"):
        memx.MemoryResource(0, device_limit=4 * PAGE, page=PAGE, lazy=True, look_ahead=-1)
    mr = memx.MemoryResource(0, device_limit=4 * PAGE, page=PAGE, lazy=True, low_water="1p", look_ahead="2p")
    mr.allocate(PAGE).close()


# -- parts of one use


def test_parts_come_in_while_others_go_out(resource: Make, kernels: Kernels) -> None:
    r = resource(device=256, host=600, lazy=True)
    a, b = r.allocate(256 * PAGE), r.allocate(256 * PAGE)
    use(r, kernels, a, 256 * PAGE, WRITE, 1 << 32)
    use(r, kernels, b, 256 * PAGE, WRITE, 2 << 32)  # a goes
    kernels.synchronize()
    with held(r.copy_in_stream()):  # the first part is still to come in when the last has gone out
        use(r, kernels, a, 256 * PAGE, READ, 1 << 32)
        assert moved(r) == (256, 512)
    verified(r, kernels, {a: (256 * PAGE, 1 << 32), b: (256 * PAGE, 2 << 32)})


def test_all_parts_go_out_without_a_stop(resource: Make, kernels: Kernels) -> None:
    r = resource(device=256, host=600, lazy=True)
    a, b = r.allocate(256 * PAGE), r.allocate(256 * PAGE)
    use(r, kernels, a, 256 * PAGE, WRITE, 1 << 32)
    kernels.synchronize()
    memx.sim.fail("cuMemUnmap", every=1, code="UNKNOWN")
    with pytest.raises(memx.DriverError):
        r.begin_use([(b, 0, 256 * PAGE, WRITE)], 0)
    memx.sim.fail("cuMemUnmap")
    assert moved(r) == (0, 256)  # every copy had been queued before the first page was unmapped
    use(r, kernels, b, 256 * PAGE, WRITE, 2 << 32)
    assert moved(r) == (0, 256)  # and none has to be made again
    verified(r, kernels, {a: (256 * PAGE, 1 << 32), b: (256 * PAGE, 2 << 32)})


def test_copies_are_timed_once(resource: Make, kernels: Kernels) -> None:
    r = resource(device=256, host=600, lazy=True)
    a, b = r.allocate(256 * PAGE), r.allocate(256 * PAGE)
    copies = []
    for address, seed in ((a, 1 << 32), (b, 2 << 32), (a, 3 << 32)):
        before = r.statistics()["driver_calls"].get("cuMemcpyDtoHAsync", 0)
        use(r, kernels, address, 256 * PAGE, WRITE, seed)
        kernels.synchronize()
        copies.append(r.statistics()["driver_calls"].get("cuMemcpyDtoHAsync", 0) - before)
    assert copies == [0, 256 + 3 * (1 + 8), 256]  # one page and eight, three times
    verified(r, kernels, {a: (256 * PAGE, 3 << 32), b: (256 * PAGE, 2 << 32)})
