"""Estimates of programs that are run for them; each run costs seconds, so each is asked several things."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memx.trace import Trace
from memx.trace import events as ev

from .child import start

pytestmark = [pytest.mark.torch_cuda, pytest.mark.timeout(300)]

MIB = 1 << 20
MEMX = ["-c", "import sys; from memx.cli import main; sys.exit(main())"]

BEFORE = """
import math, os, sys
import torch
from torch import nn
torch.manual_seed(0)
def model():
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
def batch():
    return torch.zeros(256, 512, device="cuda")
"""
WEIGHTS = 2 * 4 * 512 * 2048
PARAMETERS = WEIGHTS + 4 * (512 + 2048)


def estimated(tmp_path: Path, code: str, *options: str, status: int = 0, **environment: str) -> tuple[Any, str]:
    """The report, and what the program wrote."""
    program = tmp_path / "train.py"
    program.write_text(BEFORE + code)
    done = start(
        [*MEMX, "estimate", "--json", *options, "--", sys.executable, "-W", "ignore", str(program)], **environment
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout), done.stderr


def test_training_in_bytes(tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.jsonl.gz"
    options = ["--steps", "4", "--device", "30MiB", "--html", str(page), "--trace", str(trace)]
    report, output = estimated(
        tmp_path,
        """
net = model()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
for number in range(100):
    print("step", number)
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("never")
""",
        *options,
        status=1,  # it does not fit
        CUBLAS_WORKSPACE_CONFIG=":0:0",
    )
    assert re.findall(r"step (\d)", output) == list("0123")
    assert "never" not in output
    assert (report["steps"], report["exit_status"], report["error"], report["untrusted"]) == (4, 0, "", [])
    counters, kinds = report["torch_counters"], report["by_category"]
    assert 0 <= report["peak_bytes"] - counters["requested_bytes"] < 512 * 60
    assert kinds["parameters"] == PARAMETERS
    assert PARAMETERS * 2 <= kinds["optimizer state"] <= PARAMETERS * 2 + 512 * 8
    assert kinds["gradients"] in (WEIGHTS // 2 + 4 * 512, PARAMETERS, WEIGHTS + 4 * 512)
    assert sum(kinds.values()) == report["peak_bytes"]
    largest = report["largest"]
    assert {one["name"] for one in largest if one["category"] == "parameters"} == {"0.weight", "2.weight"}
    assert all(re.search(r"train\.py:\d+$", one["where"]) for one in largest if one["category"] == "optimizer state")
    assert "__call__" not in {one["call"] for one in largest}
    # PyTorch's native allocator reserves in the replay what it reserved in the program.
    assert report["reserved_bytes"]["torch-native"] == counters["reserved_bytes"]
    smallest = report["smallest_device_bytes"]
    assert report["planned_bytes"] == report["peak_bytes"] <= min(smallest.values())
    assert all(smallest[name] <= report["reserved_bytes"][name] for name in smallest)
    assert smallest["memx"] <= report["peak_bytes"] + 16 * MIB
    assert report["device"]["fits"] == dict.fromkeys(smallest, False)
    assert report["peak_bytes"] - 30 * MIB <= report["device"]["host_bytes"] <= report["peak_bytes"]
    assert Trace(trace).peak_live_bytes() == counters["requested_bytes"]
    kernels = Counter(event.name for event in Trace(trace) if isinstance(event, ev.Kernel))
    assert kernels["gelu"] == kernels["gelu_backward"] == 4
    assert kernels["_fused_adamw_"] == 4 * 4  # a part for each parameter
    bus = report["device"]["over_the_bus"]
    assert bus["step"] == 3
    # The update of a weight: it, its gradient and its two moments, and the step's number.
    assert 4 * WEIGHTS // 2 <= bus["largest_operation_bytes"] <= 4 * WEIGHTS // 2 + 512
    assert 0 < bus["bound_bytes"] <= bus["moved_bytes"]
    assert bus["placed_bytes"] > 0
    assert bus["bound_bytes"] <= bus["moved_told_bytes"]
    assert bus["placed_told_bytes"] <= bus["placed_bytes"]
    assert bus["modelled_seconds"]["moved"] == bus["moved_bytes"] / bus["assumed_bytes_per_second"]
    assert '"steps": 4' in page.read_text()


def test_what_cannot_be_watched_is_said_and_not_guessed(tmp_path: Path) -> None:
    report, _ = estimated(
        tmp_path,
        """
net = torch.compile(model(), backend="eager")
optimizer = torch.optim.AdamW(net.parameters())
for number in range(100):
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        "--device",
        "30MiB",
        "--steps",
        "2",
        status=1,
    )
    assert report["steps"] == 2
    assert set(report["device"]["over_the_bus"]) == {"unknown"}
    assert "torch.compile" in report["device"]["over_the_bus"]["unknown"]


ENDINGS = {
    # It takes the zeros of simulated losses for success.
    "converged": ("net(batch()).mean().item() or sys.exit()", [], 0, 0, "no optimizer of PyTorch made a step"),
    "crash": ("learn(); raise KeyError('missing')", [], 1, 1, "only one optimizer step ran"),
    "forever, by hand": ("while True: net(batch()).mean().backward()", ["--seconds", "1"], 0, 0, "its time was over"),
    "forever, catching all": (
        """
while True:
    try:
        learn()
        assert not torch.isnan(net(batch()).mean()), "NaN"
        seen = True
    except Exception:
        print("caught")
""",
        [],
        3,
        0,
        "",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_how_programs_end(tmp_path: Path, ending: str) -> None:
    code, options, steps, status, note = ENDINGS[ending]
    before = """
net = model()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def learn():
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    report, output = estimated(tmp_path, before + code, "--quick", *options, status=status)
    assert report["steps"] == steps
    assert report["peak_bytes"] >= PARAMETERS
    assert "caught" not in output
    told = report["notes"] + [f"{one['what']}: {one['why']}" for one in report["untrusted"]]
    assert any(note in one for one in told) if note else not told
    assert report["error"] == ("KeyError: 'missing'" if ending == "crash" else "")


def test_a_program_that_gets_no_memory_says_so(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch; torch.empty(1 << 45, dtype=torch.uint8, device='cuda')")
    done = start([*MEMX, "estimate", "--", sys.executable, str(program)])
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("memx: error: the program ended with status 1 and made no CUDA tensor")
    assert "OutOfMemoryError" in last


def test_watching_operations_changes_no_allocation(tmp_path: Path) -> None:
    code = """
net = model()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
while True:
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    traces = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for trace, more in zip(traces, ([], ["--device", "1TiB"]), strict=True):
        estimated(tmp_path, code, "--quick", "--steps", "2", "--trace", str(trace), *more)
    plain, watched = (
        [(e.op, getattr(e, "size", 0), e.id) for e in Trace(trace) if isinstance(e, (ev.Alloc, ev.Free))]
        for trace in traces
    )
    assert plain == watched


def test_a_program_with_all_sorts_of_habits(tmp_path: Path) -> None:
    """A loader with workers, AMP, accumulation, clipping, checkpoints, .item() in control flow, broad excepts."""
    report, output = estimated(
        tmp_path,
        """
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
net = model()
buffers = [torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")]
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler("cuda")
loader = DataLoader(TensorDataset(torch.full((4096, 512), math.nan)), 64, num_workers=2, pin_memory=True)
best = math.inf
try:
    for epoch in range(100):
        for number, (x,) in enumerate(loader):
            with torch.autocast("cuda", torch.float16):
                y = checkpoint(net, x.cuda(non_blocking=True), use_reentrant=False)
                loss = y.float().square().mean() / 4
            scaler.scale(loss).backward()
            best = min(best, loss.item())
            if number % 4 == 3:
                try:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                except Exception:
                    print("caught")
                optimizer.zero_grad()
finally:
    print("finally", number, best)
print("never")
""",
        "--quick",
        "--steps",
        "2",
    )
    assert (report["steps"], report["exit_status"]) == (2, 0)
    assert "finally 7 0.0" in output
    assert "caught" not in output
    assert "never" not in output
    kinds = report["by_category"]
    assert kinds["workspaces"] >= 8 * MIB
    assert kinds["other"] >= MIB
    assert kinds["parameters"] == PARAMETERS


def test_what_cannot_be_trusted_is_named(tmp_path: Path) -> None:
    report, output = estimated(
        tmp_path,
        """
x = batch()
print(x[x > 0].shape, nn.functional.conv2d(torch.zeros(1, 3, 8, 8).cuda(), torch.zeros(4, 3, 3, 3).cuda()).shape)
torch.fft.fft(x)
""",
        "--quick",
        status=1,
    )
    assert "torch.Size([0]) torch.Size([1, 4, 6, 6])" in output
    assert "cuFFT" in report["error"]
    met = [one["what"] for one in report["untrusted"]]
    assert len(met) == 3
    assert "mask" in met[0]
    assert "convolutions" in met[1]
    assert "cuFFT" in met[2]
    assert report["exit_status"] == 1


def test_one_rank_of_ddp(tmp_path: Path) -> None:
    report, _ = estimated(
        tmp_path,
        """
import torch.distributed as dist
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(model(), device_ids=[0])
optimizer = torch.optim.AdamW(net.parameters())
while True:
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        "--quick",
    )
    assert report["steps"] == 3
    assert "NCCL" in report["untrusted"][0]["what"]
    assert report["by_category"]["gradients"] >= PARAMETERS
