"""Buffers whose contents come from a source: dropped when others need the memory, filled again when they are used."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

Make = Callable[..., _native.Resource]
READ, WRITE = 1, 2


def use(r: _native.Resource, kernels: Kernels, address: int, nbytes: int, seed: int, stream: int = 0) -> None:
    token = r.begin_use([(address, 0, nbytes, READ)], stream)
    kernels.verify(stream, address, nbytes, seed)
    r.end_use(token)


def test_dropped_and_filled_again(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=0, lazy=True)
    sizes = [2 * PAGE, PAGE + 700, 3 * PAGE]
    buffers = [r.allocate(n, refill=pattern(i + 1 << 32, n)) for i, n in enumerate(sizes)]
    for _ in range(3):
        for i, n in enumerate(sizes):
            use(r, kernels, buffers[i], n, i + 1 << 32)
            kernels.synchronize()
            r.check()
    s = r.statistics()
    assert (s["migrated_in_bytes"], s["migrated_out_bytes"], s["host_bytes.peak"]) == (0, 0, 0)
    assert sum(sizes) < s["refilled_bytes"]  # each at least once, what had given way again
    assert kernels.mismatches == 0


def test_a_memory_mapped_file_is_a_source(resource: Make, kernels: Kernels, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(pattern(5 << 32, 3 * PAGE).tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    r = resource(device=3, host=4, lazy=True)
    a = r.allocate(3 * PAGE, refill=mapped)
    b = r.allocate(3 * PAGE, refill=np.memmap(path, np.uint8, "r"))
    for address in (a, b, a):
        use(r, kernels, address, 3 * PAGE, 5 << 32)
        kernels.synchronize()
    assert kernels.mismatches == 0
    r.free(a)
    mapped.close()  # refused while the buffer has it


def test_small_ones_share_pages_with_one_another_only(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=8, lazy=True)
    other = r.allocate(PAGE // 4)
    a = r.allocate(700, refill=pattern(1 << 32, 700))
    use(r, kernels, a, 700, 1 << 32)
    late = r.allocate(900, refill=pattern(2 << 32, 900))  # on a page that is there already
    assert late // PAGE == a // PAGE
    assert other // PAGE != a // PAGE
    out = np.empty(900, np.uint8)
    r.read(late, 0, out)
    assert np.array_equal(out, pattern(2 << 32, 900))
    use(r, kernels, late, 900, 2 << 32)
    use(r, kernels, a, 700, 1 << 32)
    r.evict(a)  # skipped: `late` is there
    third = r.allocate(600, refill=pattern(3 << 32, 600))
    r.free(a)
    r.free(third)
    fourth = r.allocate(1100, refill=pattern(4 << 32, 1100))
    use(r, kernels, fourth, 1100, 4 << 32)
    use(r, kernels, late, 900, 2 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    assert r.statistics()["refilled_bytes"] == 700 + 900 + 1100


def test_what_was_queued_there_before_is_waited_for(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0, lazy=True)
    stream = kernels.stream()
    keep = r.allocate(512, stream, refill=pattern(1 << 32, 512))
    a = r.allocate(700, stream, refill=pattern(2 << 32, 700))
    use(r, kernels, keep, 512, 1 << 32, stream)
    memx.sim.hold(stream)
    use(r, kernels, a, 700, 2 << 32, stream)
    r.free(a, stream)
    b = r.allocate(700, stream, refill=pattern(3 << 32, 700))
    assert a == b
    use(r, kernels, b, 700, 3 << 32, stream)
    memx.sim.release(stream)
    kernels.synchronize()
    assert kernels.mismatches == 0
    assert memx.sim.races() == []
    r.free(b, stream)
    r.free(keep, stream)
    kernels.destroy(stream)


def test_a_source_that_raises_leaves_all_as_it_was(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=4, lazy=True)
    contents, broken = pattern(1 << 32, 3 * PAGE), [True]

    def fill(into: memoryview, offset: int) -> None:
        if broken[0] and offset >= PAGE:
            raise OSError("the disk is gone")
        into[:] = contents[offset : offset + len(into)].tobytes()

    a = r.allocate(3 * PAGE, refill=fill)
    with pytest.raises(OSError, match="disk"):
        r.begin_use([(a, 0, 3 * PAGE, READ)], 0)
    r.check()
    broken[0] = False
    use(r, kernels, a, 3 * PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemHostAlloc", "cuMemcpyHtoDAsync"])
def test_a_failing_driver_leaves_all_as_it_was(resource: Make, kernels: Kernels, call: str) -> None:
    r = resource(device=4, host=4, lazy=True)
    a = r.allocate(3 * PAGE, refill=pattern(1 << 32, 3 * PAGE))
    memx.sim.fail(call, at=1, code="UNKNOWN")
    try:
        token = r.begin_use([(a, 0, 3 * PAGE, READ)], 0)
    except memx.DriverError as error:
        assert error.call == call
        r.check()
        token = r.begin_use([(a, 0, 3 * PAGE, READ)], 0)
    finally:
        memx.sim.fail(call)
    kernels.verify(0, a, 3 * PAGE, 1 << 32)
    r.end_use(token)
    kernels.synchronize()
    assert kernels.mismatches == 0


def test_the_source_ends_with_the_buffer(resource: Make) -> None:
    r = resource(lazy=True)
    ended: list[int] = []

    class Source:
        def __call__(self, into: memoryview, _offset: int) -> None:
            into[:] = bytes(len(into))

        def __del__(self) -> None:
            ended.append(1)

    a, b = (r.allocate(PAGE, refill=Source()) for _ in range(2))
    r.end_use(r.begin_use([(a, 0, PAGE, READ)], 0))
    assert not ended
    r.free(a)
    assert len(ended) == 1
    r.close()
    assert len(ended) == 2
    del b


def test_several_threads_fill(resource: Make, kernels: Kernels) -> None:
    r = resource(device=6, host=4, lazy=True)
    buffers = [r.allocate(2 * PAGE, refill=pattern(i + 1 << 32, 2 * PAGE)) for i in range(6)]

    def work(own: list[int], stream: int) -> None:
        kernels.attach()
        for _ in range(20):
            for i in own:
                use(r, kernels, buffers[i], 2 * PAGE, i + 1 << 32, stream)

    streams = [kernels.stream() for _ in range(2)]
    threads = [
        threading.Thread(target=work, args=(own, stream))
        for own, stream in zip(([0, 1, 2, 3], [2, 3, 4, 5]), streams, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kernels.synchronize()
    for stream in streams:
        kernels.destroy(stream)
    assert kernels.mismatches == 0
    assert memx.sim.races() == []


def test_what_cannot_be_is_refused(resource: Make, simulated: None) -> None:
    lazy, eager = resource(lazy=True), resource()
    with pytest.raises(memx.InvalidValueError, match="lazy"):
        eager.allocate(PAGE, refill=bytes(PAGE))
    with pytest.raises(memx.InvalidValueError, match=f"{PAGE - 1} bytes"):
        lazy.allocate(PAGE, refill=bytes(PAGE - 1))
    with pytest.raises(memx.InvalidValueError, match="callable"):
        lazy.allocate(PAGE, refill=3)
    with pytest.raises(memx.InvalidValueError, match="contiguous"):
        lazy.allocate(PAGE, refill=np.zeros((PAGE, 2), np.uint8)[:, 0])
    a = lazy.allocate(PAGE, refill=bytes(PAGE))
    with pytest.raises(memx.InvalidStateError, match="writes"):
        lazy.begin_use([(a, 0, 16, WRITE)], 0)
    mr = memx.MemoryResource(0, device_limit=4 * PAGE, host_limit=0, lazy=True, page=PAGE)
    with mr.allocate(PAGE, refill=np.ones(PAGE, np.uint8), priority=-1) as buffer, mr.resident(reads=[buffer]):
        assert mr.statistics()["refilled_bytes"] == PAGE


def test_pausing_drops_them(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=4, lazy=True)
    tag = r.tag_id("weights")
    a = r.allocate(3 * PAGE, 0, 0, "prefer_device", tag, pattern(1 << 32, 3 * PAGE))
    use(r, kernels, a, 3 * PAGE, 1 << 32)
    kernels.synchronize()
    r.pause(tag)
    assert r.statistics()["migrated_out_bytes"] == 0
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0
    r.resume(tag)
    use(r, kernels, a, 3 * PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


def test_a_cycle_over_more_than_fits_moves_little_more_than_the_overflow(resource: Make, kernels: Kernels) -> None:
    sizes = [PAGE * (1 + i % 8) for i in range(40)]
    total, device = sum(sizes), int(0.6 * sum(sizes)) // PAGE
    weights = [(n, pattern(i + 1 << 32, n)) for i, n in enumerate(sizes)]
    moved: dict[str, list[int]] = {}
    for policy in ("lru", "cost"):
        r = resource(device=device, host=8, lazy=True, eviction=policy)
        buffers = [r.allocate(n, refill=contents) for n, contents in weights]
        rounds = []
        for _ in range(10):
            before = r.statistics()["refilled_bytes"]
            for i, n in enumerate(sizes):
                use(r, kernels, buffers[i], n, i + 1 << 32)
            kernels.synchronize()
            rounds.append(r.statistics()["refilled_bytes"] - before)
        moved[policy] = rounds
        assert r.statistics()["host_bytes.peak"] <= 8 * PAGE
    assert moved["lru"] == [total] * 10
    overflow = total - device * PAGE
    assert moved["cost"][0] == total
    assert max(moved["cost"][2:]) <= overflow + 2 * max(sizes)
    assert kernels.mismatches == 0
