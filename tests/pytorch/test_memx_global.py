"""memx as PyTorch's allocator for every tensor, inside the real CUDA build of PyTorch."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from .child import PACKAGE, run, start

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20


def test_statistics_are_what_arithmetic_says() -> None:
    got = run(
        """
memx.torch.enable()
a, b, c = tensor(10), tensor(0.001), torch.empty(3, dtype=torch.float64, device="cuda")
del a
stats = torch.cuda.memory_stats()
nested = torch.cuda.memory_stats_as_nested_dict()
torch.cuda.reset_peak_memory_stats()
after = torch.cuda.memory_stats()
torch.cuda.reset_accumulated_memory_stats()
last = torch.cuda.memory_stats()
other = torch.accelerator.memory_stats()
intact()
print(json.dumps([stats, after, last, other["allocated_bytes.all.current"], torch.cuda.memory_allocated(),
                  torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.memory_summary()]))
"""
    )
    stats, after, last, accelerator, allocated, most, reserved, summary = got
    small = 1536 + 512  # 1048.576 and 24 bytes, rounded up to 512
    assert stats["allocation.all.current"] == 2
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.large_pool.freed"] == 1
    assert stats["allocated_bytes.all.current"] == small == allocated == accelerator
    assert stats["allocated_bytes.all.peak"] == 10 * MIB + small
    assert stats["allocated_bytes.small_pool.peak"] == small
    assert stats["requested_bytes.all.current"] == 1048 + 24
    assert stats["requested_bytes.all.freed"] == 10 * MIB
    assert stats["reserved_bytes.all.current"] == reserved == 12 * MIB
    assert stats["reserved_bytes.all.allocated"] - stats["reserved_bytes.all.freed"] == reserved
    assert stats["num_ooms"] == 0
    assert after["allocated_bytes.all.peak"] == small == most
    assert after["allocation.all.allocated"] == 3
    assert last["allocation.all.allocated"] == 0
    assert "PyTorch CUDA memory summary" in summary
    assert "12288 KiB" in summary


def test_the_keys_are_pytorchs_own() -> None:
    print_keys = "tensor(1); print(json.dumps(sorted(torch.cuda.memory_stats())))"
    own, ours = run(print_keys), run("memx.torch.enable();" + print_keys)
    assert set(own) <= set(ours)


def test_out_of_memory_is_pytorchs_error_and_survived() -> None:
    kind, message, count, again = run(
        """
memx.torch.enable(device_limit="64MiB", host_limit=0)
a = tensor(32)
try:
    tensor(48)
except torch.cuda.OutOfMemoryError as error:
    caught = error
del a
b = tensor(48)
intact()
print(json.dumps([type(caught).__name__, str(caught), torch.cuda.memory_stats()["num_ooms"], b.numel()]))
"""
    )
    assert kind == "OutOfMemoryError"
    assert message.startswith("CUDA out of memory. Tried to allocate 48 MiB. GPU 0 has a total capacity of 512 MiB")
    assert "limit 64 MiB" in message
    assert count == 1
    assert again == 48 * MIB


def test_ten_thousand_errors_leave_nothing_behind() -> None:
    before, after = run(
        """
import resource
memx.torch.enable(device_limit="8MiB", host_limit=0)
def fail(times):
    for _ in range(times):
        try:
            tensor(16)
        except torch.OutOfMemoryError:
            pass
fail(1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fail(10000)
print(json.dumps([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
    )
    assert after - before < 4096  # KiB; each message alone has half a KiB


def test_tensors_without_room_are_born_on_the_host_and_come_at_a_step() -> None:
    before, after, same, moved = run(
        """
memx.torch.enable(device_limit="64MiB", host_limit="128MiB")
data = torch.arange(48 * MIB, dtype=torch.int64).to(torch.uint8)
a = tensor(48)
b = data.cuda()
places = lambda: [place for _, _, _, state, place, _, _ in native().blocks() if state == "allocated"]
before = places()
del a
memx.torch.step()
intact()
print(json.dumps([before, places(), torch.equal(b.cpu(), data), native().statistics()["migrated_in_bytes"]]))
"""
    )
    assert before == ["device", "host"]
    assert after == ["device"]
    assert same
    assert moved == 48 * MIB


def test_without_oversubscription_there_is_no_host_memory() -> None:
    assert (
        run(
            """
memx.torch.enable(device_limit="64MiB", oversubscribe=False)
a = tensor(48)
try:
    tensor(48)
except torch.OutOfMemoryError:
    print(json.dumps(native().statistics()["host_bytes.peak"]))
"""
        )
        == 0
    )


def test_side_streams_and_record_stream() -> None:
    early, late = run(
        """
memx.torch.enable()
side = torch.cuda.Stream()
a = tensor(8)
first = a.data_ptr()
memx.sim.hold(side.cuda_stream)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    copy = torch.empty_like(a, device="cpu", pin_memory=True)
    copy.copy_(a, non_blocking=True)
a.record_stream(side)
del a
b = tensor(8)
memx.sim.release(side.cuda_stream)
torch.cuda.synchronize()
del b
torch.cuda.synchronize()
c = tensor(16)
intact()
print(json.dumps([b_first == first if (b_first := None) else False, c.data_ptr() <= first + 8 * MIB]))
"""
    )
    assert not early
    assert late


def test_a_snapshot_is_taken_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    allocated = run(
        f"""
memx.torch.enable()
torch.cuda.memory._record_memory_history(max_entries=4)
a, b = tensor(3), tensor(5)
del a
torch.cuda.memory._dump_snapshot({str(path)!r})
print(json.dumps(torch.cuda.memory_allocated()))
"""
    )
    snapshot = pickle.loads(path.read_bytes())
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert sum(block["size"] for block in blocks if block["state"] == "active_allocated") == allocated == 5 * MIB
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    actions = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]]
    assert actions == [("alloc", 3 * MIB), ("alloc", 5 * MIB), ("free_requested", 3 * MIB), ("free_completed", 3 * MIB)]
    from memx.plan.snapshots import read_snapshot

    assert read_snapshot(path)


def test_a_captured_graph_keeps_its_memory_until_it_goes() -> None:
    held, reused, kept, later = run(
        """
memx.torch.enable(device_limit="32MiB", host_limit=0)
x = tensor(4)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x + 1
    first = y.data_ptr()
    del y
    z = x + 2
    second = z.data_ptr()
    del z
held = native().statistics()["reserved_bytes.current"]
others = [tensor(4) for _ in range(4)]
kept = second not in [t.data_ptr() for t in others]
graph.replay()
torch.cuda.synchronize()
del others
graph.reset()
del graph
everything = tensor(28)
intact()
print(json.dumps([held, first == second, kept, native().statistics()["reserved_bytes.current"]]))
"""
    )
    assert held == 8 * MIB
    assert reused  # within the capture
    assert kept  # outside it
    assert later == 32 * MIB  # 4 live and 28: the graph's memory serves again


def test_empty_cache_gives_back_what_is_free() -> None:
    before, after = run(
        """
memx.torch.enable()
a = tensor(2)
b = tensor(30)
del b
before = torch.cuda.memory_reserved()
torch.cuda.empty_cache()
intact()
print(json.dumps([before, torch.cuda.memory_reserved()]))
"""
    )
    assert (before, after) == (32 * MIB, 2 * MIB)


def test_a_memory_fraction_is_a_limit() -> None:
    assert (
        run(
            """
memx.torch.enable(host_limit=0)
torch.cuda.set_per_process_memory_fraction(0.25)
a = tensor(120)
try:
    tensor(16)
except torch.OutOfMemoryError:
    print(json.dumps(native().device_limit()))
"""
        )
        == 128 * MIB
    )


def test_devices_have_limits_of_their_own_and_reach_one_another() -> None:
    places, same = run(
        """
memx.torch.enable(device_limit="64MiB", host_limit=0)
data = torch.arange(40 * MIB, dtype=torch.int64).to(torch.uint8)
a = data.to("cuda:0")
b = tensor(40, device="cuda:1")
b.copy_(a)
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
intact()
print(json.dumps([[torch.cuda.memory_allocated(i) for i in (0, 1)], torch.equal(b.cpu(), data)]))
""",
        devices=2,
    )
    assert places == [40 * MIB, 40 * MIB]
    assert same


def test_threads_allocate_at_once() -> None:
    assert (
        run(
            """
import threading
memx.torch.enable(device_limit="256MiB")
def work(seed):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(200):
            t = tensor(1 + (seed * 7 + i) % 5)
            u = tensor(0.01)
            t.record_stream(torch.cuda.default_stream())
            del t, u
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
intact()
print(json.dumps(torch.cuda.memory_allocated()))
"""
        )
        == 0
    )


def test_a_second_enable_and_a_disable_are_refused_with_the_reason() -> None:
    second, off, late = run(
        """
said = []
memx.torch.enable()
for call in (memx.torch.enable, memx.torch.disable):
    try:
        call()
    except memx.InvalidStateError as error:
        said.append(str(error))
print(json.dumps(said + [memx.torch.enabled()]))
"""
    )
    assert "enabled already" in second
    assert "start a new process" in off
    assert late is True


def test_enabling_after_cuda_was_used_is_refused() -> None:
    message, works = run(
        """
a = tensor(1)
try:
    memx.torch.enable()
except memx.InvalidStateError as error:
    message = str(error)
print(json.dumps([message, tensor(1).numel()]))
"""
    )
    assert "has used CUDA already" in message
    assert works == MIB


def test_settings_from_the_environment() -> None:
    code = "memx.torch.enable(); tensor(1); print(json.dumps(native().device_limit()))"
    assert run(code, MEMX_CONF="device_limit:96MiB, oversubscribe:false") == 96 * MIB
    failed = start(["-m", "memx.torch", "nothing.py"], MEMX_SIMULATE="memory=64MiB", MEMX_CONF="device_limt:96MiB")
    assert failed.returncode == 2
    assert "'device_limt:96MiB' is not understood" in failed.stderr


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "x = torch.ones(1 << 20, device='cuda')\n"
        "print(sys.argv[1:], torch.cuda.memory_allocated(), torch.cuda.memory.get_allocator_backend())\n"
    )
    done = start(["-m", "memx.torch", str(script), "--epochs", "3"], MEMX_SIMULATE="memory=256MiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["['--epochs',", "'3']", str(4 * MIB), "pluggable"]


@pytest.mark.parametrize(
    "ending", ["pass", "del a", "graph.reset()", "sys.exit(3)", "os._exit(3)", "1 / 0", "os.fork()"]
)
def test_exits(ending: str, tmp_path: Path) -> None:
    script = tmp_path / "exit.py"
    script.write_text(
        "import os, sys, torch\n"
        "a = torch.ones(1 << 20, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    b = a + 1\n"
        f"{ending}\n"
    )
    done = start(["-m", "memx.torch", str(script)], MEMX_SIMULATE="memory=256MiB")
    assert done.returncode == {"sys.exit(3)": 3, "os._exit(3)": 3, "1 / 0": 1}.get(ending, 0), done.stderr
    assert ("ZeroDivisionError" in done.stderr) == (ending == "1 / 0")
    assert "memx:" not in done.stderr


def test_a_forked_child_that_leaves_cuda_alone_is_fine() -> None:
    assert run(
        """
memx.torch.enable()
import torch.utils.data as data
held = tensor(4)
loader = data.DataLoader(list(range(32)), batch_size=8, num_workers=2)
total = sum(int(batch.sum()) for batch in loader)
intact()
print(json.dumps(total))
"""
    ) == sum(range(32))


def test_what_is_not_supported_says_so() -> None:
    message = run(
        """
memx.torch.enable()
tensor(1)
try:
    torch.cuda.MemPool()
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    )
    assert "createOrIncrefPool" in message


def test_the_package_has_no_need_of_torch() -> None:
    done = start(["-c", "import sys, memx; memx.torch; print('torch' in sys.modules)"])
    assert done.stdout.strip() == "False", done.stderr
    assert PACKAGE.exists()
