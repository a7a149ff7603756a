"""A program: what PyTorch does with the simulated device, one check a function; prints what failed, by name.

It runs on two devices of 1 GiB each, with PyTorch's native allocator or its expandable segments.
"""

from __future__ import annotations

import gc
import json
import os
import traceback
from collections.abc import Callable

import torch

import memx

MIB = 1 << 20
DEVICE_BYTES = 1 << 30
EXPANDABLE = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def megabytes(count: float, device: int = 0) -> torch.Tensor:
    return torch.empty(int(count * MIB), dtype=torch.uint8, device=f"cuda:{device}")


def pattern(count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.randint(0, 100, (count,), generator=torch.Generator().manual_seed(count)).to(dtype)


def check_the_device_is_there() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory == DEVICE_BYTES
    assert properties.multi_processor_count > 0
    assert properties.warp_size == 32
    assert torch.cuda.get_device_name(1) == properties.name
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert not torch.backends.cudnn.enabled


def check_contents_survive_copies() -> None:
    for dtype in (torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex64):
        for count in (1, 3, 1000, 123_457):
            source = pattern(count, dtype)
            there = source.to("cuda")
            twin = torch.empty_like(there)
            twin.copy_(there)
            other = twin.to("cuda:1")
            assert torch.equal(other.cpu(), source)
            assert torch.equal(twin.cpu(), source)


def check_a_part_of_a_tensor() -> None:
    source = pattern(10_000)
    there = torch.empty(10_000, dtype=source.dtype, device="cuda")
    there[2000:7000].copy_(source[:5000])
    there[3000:4000].copy_(source[9000:])
    back = there[2000:7000].cpu()
    assert torch.equal(back[:1000], source[:1000])
    assert torch.equal(back[1000:2000], source[9000:])
    assert torch.equal(back[2000:], source[2000:5000])


def check_pinned_memory() -> None:
    pinned = pattern(50_000).pin_memory()
    assert pinned.is_pinned()
    assert not pattern(10).is_pinned()
    there = pinned.to("cuda", non_blocking=True)
    back = torch.empty_like(pinned, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, pinned)


def check_streams_are_asynchronous() -> None:
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    pinned = torch.empty(1000, dtype=torch.int32, pin_memory=True).zero_()
    there = pattern(1000).to("cuda")
    torch.cuda.synchronize()
    memx.sim.hold(stream)
    with torch.cuda.stream(stream):
        pinned.copy_(there, non_blocking=True)
        event.record()
    assert not event.query()
    assert not stream.query()
    assert not pinned.any()
    memx.sim.release(stream)
    event.synchronize()
    assert event.query()
    assert torch.equal(pinned, pattern(1000))


def check_events_order_streams_and_take_time() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    source = pattern(100_000).pin_memory()
    there = torch.empty(100_000, dtype=torch.int32, device="cuda")
    back = torch.empty(100_000, dtype=torch.int32, pin_memory=True)
    memx.sim.hold(first)
    with torch.cuda.stream(first):
        start.record()
        there.copy_(source, non_blocking=True)
        end.record()
    second.wait_event(end)
    with torch.cuda.stream(second):
        back.copy_(there, non_blocking=True)
    assert not second.query()
    memx.sim.release(first)
    second.synchronize()
    assert torch.equal(back, source)
    assert start.elapsed_time(end) >= 0


def check_record_stream_keeps_memory() -> None:
    stream = torch.cuda.Stream()
    tensor = megabytes(3)
    address = tensor.data_ptr()
    memx.sim.hold(stream)
    with torch.cuda.stream(stream):
        torch.empty_like(tensor).copy_(tensor)
    tensor.record_stream(stream)
    del tensor
    assert megabytes(3).data_ptr() != address
    memx.sim.release(stream)
    stream.synchronize()
    assert address in {block.data_ptr() for block in [megabytes(3) for _ in range(20)]}


def check_statistics_are_arithmetic() -> None:
    torch.cuda.reset_peak_memory_stats()
    tensors = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 512, 513, 12 * MIB, 3 * MIB)]
    stats = torch.cuda.memory_stats()
    allocated = 512 + 512 + 1024 + 12 * MIB + 3 * MIB
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() == allocated
    assert stats["requested_bytes.all.current"] == 1 + 512 + 513 + 15 * MIB
    # The small ones share 2 MiB; 12 MiB are a segment and 3 cut from 20, or both from 20 that are mapped at once.
    reserved = (2 + 20 if EXPANDABLE else 2 + 12 + 20) * MIB
    assert stats["reserved_bytes.all.current"] == reserved
    assert memx.sim.usage()["device_bytes"][0] == reserved
    free, total = torch.cuda.mem_get_info()
    assert (free, total) == (DEVICE_BYTES - reserved, DEVICE_BYTES)
    del tensors[4]
    assert torch.cuda.memory_allocated() == allocated - 3 * MIB
    assert torch.cuda.max_memory_allocated() == allocated
    del tensors
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == memx.sim.usage()["device_bytes"][0] == 0


def check_a_snapshot_shows_segments_and_history() -> None:
    torch.cuda.memory._record_memory_history()
    address = megabytes(5).data_ptr()
    live = megabytes(7)
    snapshot = torch.cuda.memory._snapshot()
    del live
    torch.cuda.memory._record_memory_history(enabled=None)
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert [b["size"] for b in blocks if b["state"] == "active_allocated"] == [7 * MIB]
    assert all(segment["is_expandable"] == EXPANDABLE for segment in snapshot["segments"])
    actions = [(t["action"], t["size"]) for t in snapshot["device_traces"][0] if t["addr"] == address]
    assert ("alloc", 5 * MIB) in actions
    assert ("free_completed", 5 * MIB) in actions


def check_memory_runs_out_at_the_limit_and_is_survived() -> None:
    hundred = [megabytes(100) for _ in range(10)]
    before = torch.cuda.memory_allocated()
    try:
        megabytes(100)
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 100.00 MiB" in str(error)
        assert "1024.00 MiB" in str(error) or "1.00 GiB" in str(error)
    else:
        raise AssertionError("more than the device has")
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    hundred.pop()
    assert megabytes(100).numel() == 100 * MIB


def check_graphs_replay_copies() -> None:
    first, last = (
        torch.empty(1000, dtype=torch.int32, device="cuda"),
        torch.empty(1000, dtype=torch.int32, device="cuda"),
    )
    between = torch.empty_like(first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        temporary = first.clone()
        between.copy_(temporary)
        last.copy_(between)
    assert not torch.cuda.is_current_stream_capturing()
    for seed in (1, 2):
        source = pattern(1000) + seed
        first.copy_(source)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(last.cpu(), source)
    graph.reset()


def check_pools_of_memory() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = megabytes(30)
    outside = megabytes(30)
    found = {}
    for segment in torch.cuda.memory_snapshot():
        for tensor in (inside, outside):
            if segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]:
                found[tensor.data_ptr()] = tuple(segment["segment_pool_id"])
    assert found == {inside.data_ptr(): tuple(pool.id), outside.data_ptr(): (0, 0)}


def check_devices_are_apart() -> None:
    one = megabytes(40, device=1)
    assert torch.cuda.memory_allocated(1) == 40 * MIB
    assert torch.cuda.memory_allocated(0) == 0
    assert torch.cuda.mem_get_info(1)[0] < torch.cuda.mem_get_info(0)[0]
    assert torch.cuda.can_device_access_peer(0, 1)
    with torch.cuda.device(1):
        stream = torch.cuda.Stream()
        assert stream.device.index == 1
        assert torch.empty(1, device="cuda").device.index == 1
    del one


def check_shapes_that_depend_on_data_are_empty() -> None:
    there = pattern(1000).to("cuda")
    assert there.nonzero().shape == (0, 1)
    assert there[there > 50].shape == (0,)
    assert there.sum().item() == 0
    assert torch.tensor(7, device="cuda").item() == 7
    assert not torch.isnan(torch.randn(100, device="cuda").mean()).item()


def check_what_kernels_are_counted() -> None:
    memx.sim.reset_counts()
    a = torch.empty(64, 64, device="cuda")
    a @ a
    a + a
    kernels = {name: count for name, count in memx.sim.calls().items() if name.startswith("kernel:")}
    assert kernels.pop("kernel:cublasSgemm_v2") == 1
    assert list(kernels.values()) == [1]


def check_memory_comes_as_it_was_asked_for() -> None:
    memx.sim.reset_counts()
    megabytes(50)
    calls = memx.sim.calls()
    assert ("cuMemMap" in calls) == EXPANDABLE
    assert ("cuMemAlloc" in calls) == (not EXPANDABLE)


def check_no_race_was_seen() -> None:
    assert memx.sim.races() == []


def check_calls_that_a_capture_forbids() -> None:
    # The last: PyTorch 2.12 does not get over a capture that failed.
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    there = torch.ones(10, device="cuda")
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(graph, stream=stream):
            there + 1
            stream.synchronize()
    except RuntimeError as error:
        assert "captur" in str(error)
    else:
        raise AssertionError("waited for a capturing stream")
    torch.cuda.synchronize()
    assert torch.equal(pattern(10).to("cuda").cpu(), pattern(10))


def run(check: Callable[[], None]) -> str:
    """What went wrong; nothing if it passed."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    checks = {name: check for name, check in globals().items() if name.startswith("check_")}
    print(json.dumps({name: run(check) for name, check in checks.items()}))
