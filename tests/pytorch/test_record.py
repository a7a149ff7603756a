"""Recording PyTorch programs from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memx.trace import Trace
from memx.trace import events as ev

from .child import start

pytestmark = [pytest.mark.torch_cuda, pytest.mark.timeout(300)]

MIB = 1 << 20
MEMX = ["-c", "import sys; from memx.cli import main; sys.exit(main())"]

TRAINING = """
import os, signal, sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
peaks = []
def step():
    batch = torch.zeros(64, 256).pin_memory()
    with torch.cuda.stream(side):
        x = batch.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def recorded(
    tmp_path: Path, code: str, *options: str, status: int = 0, **environment: str
) -> tuple[dict[str, Any], str]:
    """What the command prints, and what the program does."""
    program = tmp_path / "train.py"
    program.write_text(code)
    python = [sys.executable, "-W", "ignore", str(program), "--flag"]
    done = start(
        [*MEMX, "record", "--simulate", "--json", "-o", str(tmp_path / "t.jsonl.gz"), *options, "--", *python],
        **environment,
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout), done.stderr


def peak(path: Path) -> int:
    return Trace(path).peak_live_bytes()


def test_training_with_operations_and_a_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.pickle"
    found, output = recorded(
        tmp_path,
        TRAINING
        + """
assert sys.argv[1:] == ["--flag"]
for _ in range(3):
    step()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
print("PEAK", stats["requested_bytes.all.peak"], stats["allocation.all.allocated"])
""",
        "--operations",
        "--snapshot",
        str(snapshot),
    )
    (trace,) = found["traces"]
    requested, buffers = (int(word) for word in output.split("PEAK ")[1].split()[:2])
    path = tmp_path / "t.jsonl.gz"
    assert trace["peak_live_bytes"] == peak(path) == requested
    assert trace["buffers"] == buffers
    assert trace["steps"] == 3
    events = list(Trace(path))
    names = [event.name or "" for event in events if isinstance(event, ev.Kernel)]
    assert names.count("aten.gelu.default") == names.count("aten.gelu_backward.default") == 3
    assert sum(isinstance(event, ev.Wait) for event in events) == 3
    assert sum(isinstance(event, ev.RecordStream) for event in events) == 3
    assert isinstance(events[-1], (ev.Sync, ev.Free))
    # In the first forward pass, its operands: bias, input and weight are read, a new buffer is written.
    first = next(event for event in events if isinstance(event, ev.Kernel) and event.name == "aten.addmm.default")
    sizes = {event.id: event.size for event in events if isinstance(event, ev.Alloc)}
    assert sorted(sizes[operand.id] for operand in first.reads) == [4 * 1024, 4 * 64 * 256, 4 * 256 * 1024]
    assert [sizes[operand.id] for operand in first.writes] == [4 * 64 * 1024]
    replayed = start([*MEMX, "replay", "--simulate", "--json", str(path)])
    assert replayed.returncode == 0, replayed.stdout
    viewed = start(
        [
            "-c",
            f"""
import json, pickle, torch
from torch.cuda import _memory_viz as viz
snapshot = pickle.load(open({str(snapshot)!r}, "rb"))
assert "memx" in str(snapshot["allocator_settings"])
assert viz.segsum(snapshot) and viz.trace(snapshot)
assert "<html>" in viz.trace_plot(snapshot) and "<html>" in viz.segment_plot(snapshot)
live = sum(b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
assert "train.py:" in viz.memory(snapshot, format_flamegraph=str)
lines = open({str(tmp_path / "train.py")!r}).read().splitlines()
def made(frames):
    return next((lines[f["line"] - 1].strip() for f in frames if f["filename"].endswith("train.py")), "no line")
entries = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
print(live, len(entries), json.dumps([
    [[e["size"], made(e["frames"]), e["frames"][0]["name"] if e["frames"] else ""] for e in entries],
    [[b["requested_size"], made(b["frames"])] for b in blocks],
]))
""",
        ]
    )
    assert viewed.returncode == 0, viewed.stderr
    first, second, told = viewed.stdout.split(maxsplit=2)
    live, allocations = int(first), int(second)
    assert allocations == buffers
    assert 0 < live < requested
    made, blocks = json.loads(told)
    assert made[0][:2] == [4 * 256 * 1024, TRAINING.splitlines()[4]]  # the very first
    batches = [line for size, line, _ in made if size == 4 * 64 * 256 and "batch.to" in line]
    assert batches == ['x = batch.to("cuda", non_blocking=True)'] * 3
    assert [name for size, line, name in made if size == 4 * 64 * 1024 and "square" in line][:2] == ["forward"] * 2
    training = "model(x).square().mean().backward()"
    assert {line for _, line in blocks} <= {TRAINING.splitlines()[4], "optimizer.step()", training, "no line"}
    moments = [size for size, line in blocks if line == "optimizer.step()"]
    assert moments.count(4 * 256 * 1024) == 4  # two of each weight


def test_a_killed_script_leaves_a_trace(tmp_path: Path) -> None:
    found, _ = recorded(
        tmp_path,
        TRAINING
        + """
import time
for _ in range(3):
    step()
kept = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
time.sleep(1)  # more than the interval at which events are sent
os.kill(os.getpid(), signal.SIGKILL)
""",
        status=137,
    )
    assert found["exit_status"] == 137
    assert found["traces"][0]["steps"] == 3
    sizes = [event.size for event in Trace(tmp_path / "t.jsonl.gz") if isinstance(event, ev.Alloc)]
    assert sizes[-1] == 5 * MIB


def test_processes_and_forks(tmp_path: Path) -> None:
    """A forked child leaves the trace alone; a process of its own has its own."""
    found, output = recorded(
        tmp_path,
        TRAINING
        + """
import subprocess
step()
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
data = torch.utils.data.DataLoader(range(8), num_workers=2)
assert [int(x) for x in data] == list(range(8))
code = "import torch; torch.empty(3 << 20, dtype=torch.uint8, device='cuda')"
subprocess.run([sys.executable, "-c", code], check=True)
step()
""",
    )
    assert [trace["steps"] for trace in found["traces"]] == [2, 0]
    assert "not recorded" not in output
    assert peak(tmp_path / "t.2.jsonl.gz") == 3 * MIB


def test_out_of_memory_is_the_programs_and_in_the_trace(tmp_path: Path) -> None:
    found, output = recorded(
        tmp_path,
        """
import torch
x = torch.empty(1 << 20, device="cuda")
torch.empty(1 << 40, device="cuda")
""",
        "--memory",
        "64MiB",
        status=1,
        MEMX_CONF="host_limit:0",
    )
    assert "torch.OutOfMemoryError" in output
    assert found["exit_status"] == 1
    events = [event for event in Trace(tmp_path / "t.jsonl.gz") if isinstance(event, ev.Alloc)]
    assert [(event.size, event.expect) for event in events] == [(4 * MIB, "ok"), (4 << 40, "any")]


# The first piece fits, what comes after it does not.
FILLING = """
import time
step()
time.sleep(2)
for _ in range(40):
    step()
print("trained")
"""


def test_a_full_disk_does_not_end_the_program(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    unlimited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
    program.write_text(unlimited + TRAINING + FILLING)
    path = tmp_path / "t.jsonl.gz"
    command = ["-o", str(path), "--quiet", "--", sys.executable, str(program)]
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, -1))\n" + MEMX[1]
    done = start(["-c", code, "record", "--simulate", *command])
    assert "trained" in done.stdout
    assert done.returncode == 1
    assert "the trace ends early" in done.stderr
    assert path.stat().st_size <= 4000
    assert list(Trace(path))


def test_the_command_needs_no_pytorch_of_its_own() -> None:
    code = "import sys, memx.record, memx.cli.record; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
