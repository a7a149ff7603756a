"""Oversubscription, moves and limits, with every byte checked by kernels."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from allocator.device import ok, pattern
from cuda.bindings import driver

import memx

from .conftest import Device

pytestmark = pytest.mark.gpu
Make = Callable[..., memx.MemoryResource]


class Contents:
    """Stamps buffers, remembers with what, and verifies them with kernels."""

    def __init__(self, device: Device) -> None:
        self.kernels = device.kernels
        self._seeds: dict[int, int] = {}
        self._next = 0

    def stamp(self, buffer: memx.Buffer, stream: int) -> None:
        self._next += 1
        self._seeds[int(buffer.handle)] = self._next << 32 | 0x5EED
        self.kernels.stamp(stream, int(buffer.handle), buffer.size, self._next << 32 | 0x5EED)

    def verify(self, buffer: memx.Buffer, stream: int) -> None:
        address = int(buffer.handle)
        self.kernels.verify(stream, address, buffer.size, self._seeds[address])

    def expected(self, buffer: memx.Buffer) -> np.ndarray:
        return pattern(self._seeds[int(buffer.handle)], buffer.size)


@pytest.fixture
def contents(device: Device) -> Contents:
    return Contents(device)


def needs_host_mapping(device: Device) -> None:
    if not device.host_mapping:
        pytest.skip("this driver maps no host memory")


def test_the_driver_can_do_what_memx_needs(
    device: Device, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """What the probe found goes into the report."""
    found = memx._native.probe(0)
    for key, value in found.items():
        record_testsuite_property(f"probe_{key}", value)
    assert found["page_bytes"] % 4096 == 0
    assert found["total_bytes"] >= device.free_bytes()


def test_eager_buffers_spill_to_the_host(device: Device, make: Make, contents: Contents) -> None:
    """Three times the device's limit, reachable from birth to free."""
    needs_host_mapping(device)
    page = device.page
    mr = make(device_limit=32 * page, host_limit=128 * page)
    buffers = [mr.allocate(6 * page - 700 * i) for i in range(16)]
    for buffer in buffers:
        contents.stamp(buffer, 0)
    for buffer in random.Random(1).sample(buffers, len(buffers)):
        contents.verify(buffer, 0)
    device.kernels.synchronize()
    counters = mr.statistics()
    assert counters["reserved_bytes.peak"] <= 32 * page
    assert counters["host_bytes.current"] >= sum(buffer.size for buffer in buffers) - 32 * page
    for buffer in buffers[::2]:
        buffer.close()
    device.kernels.synchronize()
    mr.rebalance()
    for buffer in buffers[1::2]:
        contents.verify(buffer, 0)
    assert mr.statistics()["migrated_in_bytes"] > 0
    device.kernels.synchronize()


def test_lazy_buffers_come_and_go(device: Device, make: Make, contents: Contents) -> None:
    """Five times the device's limit, used at random on several streams."""
    page = device.page
    mr = make(device_limit=24 * page, host_limit=256 * page, lazy=True)
    streams = [0, device.kernels.stream(), device.kernels.stream()]
    rng = random.Random(2)
    buffers = [mr.allocate(5 * page + 512 * i) for i in range(24)]
    for buffer in buffers:
        stream = rng.choice(streams)
        with mr.resident(writes=(buffer,), stream=stream):
            contents.stamp(buffer, stream)
        device.kernels.synchronize()
    for round_ in range(200):
        stream = rng.choice(streams)
        a, b = rng.sample(buffers, 2)
        with mr.resident(reads=(a,), writes=(b,), stream=stream):
            contents.verify(a, stream)
            contents.stamp(b, stream)
        if round_ % 3 == 0:
            device.kernels.synchronize()
        for other in streams:
            if other != stream:
                device.kernels.order(other, stream)
                mr.note_wait(other, stream)
    device.kernels.synchronize()
    out = np.empty(max(buffer.size for buffer in buffers), np.uint8)
    for buffer in buffers:
        mr.native.read(int(buffer.handle), 0, out[: buffer.size])
        assert np.array_equal(out[: buffer.size], contents.expected(buffer))
    counters = mr.statistics()
    assert counters["reserved_bytes.peak"] <= 24 * page
    assert counters["migrated_in_bytes"] > 24 * page
    assert counters["migrated_out_bytes"] > 24 * page
    for buffer in buffers:
        buffer.close()
    device.kernels.synchronize()
    for stream in streams[1:]:
        device.kernels.destroy(stream)


def test_the_driver_sees_the_limit_hold(device: Device, make: Make) -> None:
    """What the device lost is at most the limit, however allocations come and go."""
    page = device.page
    before = device.free_bytes()
    mr = make(device_limit=64 * page, host_limit=0)
    slack = 32 * page  # what the driver itself needs for page tables and streams
    rng = random.Random(3)
    live: list[memx.Buffer] = []
    for _ in range(300):
        if live and rng.random() < 0.45:
            live.pop(rng.randrange(len(live))).close()
        try:
            live.append(mr.allocate(rng.randint(1, 12 * page)))
        except memx.OutOfMemoryError:
            live.pop(rng.randrange(len(live))).close()
        assert before - device.free_bytes() <= 64 * page + slack
        assert mr.statistics()["reserved_bytes.current"] <= 64 * page
    for buffer in live:
        buffer.close()
    device.kernels.synchronize()
    mr.trim()
    assert mr.statistics()["reserved_bytes.current"] == 0
    assert before - device.free_bytes() <= slack


def test_a_request_that_cannot_be_met_changes_nothing(device: Device, make: Make, contents: Contents) -> None:
    """Out of memory is an error, and what lives stays as it is."""
    page = device.page
    mr = make(device_limit=16 * page, host_limit=8 * page)
    keep = mr.allocate(12 * page)
    contents.stamp(keep, 0)
    before = mr.statistics()
    with pytest.raises(memx.OutOfMemoryError):
        mr.allocate(25 * page)
    after = mr.statistics()
    assert after["allocated_bytes.current"] == before["allocated_bytes.current"]
    contents.verify(keep, 0)
    device.kernels.synchronize()
    keep.close()


def test_the_device_itself_runs_out(device: Device, make: Make, contents: Contents) -> None:
    """With no limit but the device's: more than half of it, once; twice does not fit; then it fits again."""
    mr = make(host_limit=0, oversubscribe=False)
    size = device.free_bytes() * 6 // 10
    first = mr.allocate(size)
    with pytest.raises(memx.OutOfMemoryError):
        mr.allocate(size)
    tail = 4 * device.page
    device.kernels.stamp(0, int(first.handle) + size - tail, tail, 77 << 32)
    device.kernels.verify(0, int(first.handle) + size - tail, tail, 77 << 32)
    device.kernels.synchronize()
    first.close()
    device.kernels.synchronize()
    mr.allocate(size).close()


def test_contents_move_out_and_in_again(device: Device, make: Make, contents: Contents) -> None:
    """Evicted to host pages at the same address, prefetched back."""
    needs_host_mapping(device)
    page = device.page
    mr = make(device_limit=16 * page, host_limit=16 * page)
    buffer = mr.allocate(9 * page)
    contents.stamp(buffer, 0)
    device.kernels.synchronize()
    assert mr.evict(buffer) == 0
    assert mr.statistics()["host_bytes.current"] == 9 * page
    contents.verify(buffer, 0)
    device.kernels.synchronize()
    assert mr.prefetch(buffer) == 0
    contents.verify(buffer, 0)
    device.kernels.synchronize()
    assert mr.statistics()["migrated_out_bytes"] == mr.statistics()["migrated_in_bytes"] == 9 * page
    buffer.close()


def test_a_paused_tag_gives_its_memory_to_others(device: Device, make: Make, contents: Contents) -> None:
    """Paused and trimmed, the device has the memory back; resumed, the contents are there."""
    page = device.page
    mr = make(device_limit=64 * page, host_limit=64 * page)
    with mr.tag("weights"):
        weights = [mr.allocate(16 * page) for _ in range(3)]
    for buffer in weights:
        contents.stamp(buffer, 0)
    device.kernels.synchronize()
    before = device.free_bytes()
    mr.pause("weights")
    mr.trim()
    assert device.free_bytes() - before >= 40 * page
    mr.resume("weights")
    for buffer in weights:
        contents.verify(buffer, 0)
    device.kernels.synchronize()
    for buffer in weights:
        buffer.close()


@pytest.mark.parametrize("reuse", ["stream", "default", "mutual"])
def test_freed_memory_is_reused_in_order(device: Device, make: Make, contents: Contents, reuse: str) -> None:
    """Freed on one stream while its work is queued, allocated on another at once: nobody's bytes are lost."""
    page = device.page
    mr = make(device_limit=24 * page, host_limit=0, reuse=reuse)
    streams = [device.kernels.stream() for _ in range(4)]
    rng = random.Random(4)
    for _ in range(150):
        stream = rng.choice(streams)
        buffer = mr.allocate(rng.randint(1, 6 * page), stream=stream)
        contents.stamp(buffer, stream)
        contents.verify(buffer, stream)
        buffer.close()
    device.kernels.synchronize()
    assert mr.statistics()["reserved_bytes.peak"] <= 24 * page
    for stream in streams:
        device.kernels.destroy(stream)


def test_a_graph_keeps_the_memory_it_captured(device: Device, make: Make, contents: Contents) -> None:
    """Freed during a capture, memory is not given to others while the graph may be launched."""
    page = device.page
    mr = make(device_limit=16 * page, host_limit=0)
    stream = device.kernels.stream()
    result = mr.allocate(2 * page, stream=stream)
    contents.stamp(result, stream)
    device.kernels.synchronize()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(driver.cuStreamBeginCapture(stream, mode))
    inside = mr.allocate(2 * page, stream=stream)
    device.kernels.stamp(stream, int(inside.handle), 2 * page, 5 << 32)
    device.kernels.verify(stream, int(inside.handle), 2 * page, 5 << 32)
    inside.close()
    graph = ok(driver.cuStreamEndCapture(stream))
    runnable = ok(driver.cuGraphInstantiate(graph, 0))
    others = [mr.allocate(2 * page, stream=stream) for _ in range(5)]
    for buffer in others:
        contents.stamp(buffer, stream)
    for _ in range(3):
        ok(driver.cuGraphLaunch(runnable, stream))
    for buffer in (*others, result):
        contents.verify(buffer, stream)
    device.kernels.synchronize()
    ok(driver.cuGraphExecDestroy(runnable))
    ok(driver.cuGraphDestroy(graph))
    for buffer in (*others, result):
        buffer.close()
    device.kernels.synchronize()
    device.kernels.destroy(stream)
