"""Training with memx as PyTorch's allocator: the peak is PyTorch's own, and arithmetic's, to the byte."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from .child import run, start
from .conftest import PROGRAM
from .test_sim_runtime_training import INSIDE_OPERATORS, MODELS

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20


@functools.cache
def under_memx() -> dict[str, Any]:
    done = start(
        ["-W", "ignore", "-m", "memx.torch", str(PROGRAM)],
        MEMX_SIMULATE="memory=2GiB",
        CUBLAS_WORKSPACE_CONFIG=":0:0",
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_pytorchs_own(results: dict[str, Any], model: str) -> None:
    ours, native = under_memx()[model], results[model]
    assert not ours["error"], ours["error"]
    assert ours["measured"] == native["measured"]
    if model not in INSIDE_OPERATORS:
        assert ours["measured"] == ours["computed"]


def test_training_leaves_no_race() -> None:
    assert under_memx()["races"] == 0


TRAINING = """
from torch import nn
def train(steps):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True), 3, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    side = torch.cuda.Stream()
    for step in range(steps):
        batch = torch.zeros(4, 64, 256).pin_memory()
        with torch.cuda.stream(side):
            x = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step
"""


def test_a_transformer_trains_in_half_of_what_it_needs() -> None:
    peak, host, reserved = run(
        TRAINING
        + """
memx.torch.enable(device_limit="8MiB", host_limit="256MiB")
for step in train(3):
    memx.torch.step()
intact()
stats = native().statistics()
print(json.dumps([torch.cuda.max_memory_allocated(), stats["host_bytes.peak"], stats["reserved_bytes.peak"]]))
""",
        CUBLAS_WORKSPACE_CONFIG=":0:0",
    )
    assert peak > 12 * MIB
    assert 0 < host <= 256 * MIB
    assert reserved <= 8 * MIB


def test_a_repeated_step_asks_the_driver_for_nothing() -> None:
    assert (
        run(
            TRAINING
            + """
memx.torch.enable()
before = {}
for step in train(4):
    if step == 2:
        before = native().statistics()["driver_calls"]
    torch.cuda.synchronize()
after = native().statistics()["driver_calls"]
intact()
names = [name for name in after if name.startswith("cuMem")]
print(json.dumps({name: after.get(name, 0) - before.get(name, 0) for name in names
                  if after.get(name, 0) != before.get(name, 0)}))
""",
            CUBLAS_WORKSPACE_CONFIG=":0:0",
        )
        == {}
    )


def test_training_in_a_pool() -> None:
    held, allocated = run(
        TRAINING
        + """
with memx.torch.pool(device_limit="256MiB") as pool:
    for step in train(3):
        pass
    held = native().statistics()["allocated_bytes.peak"]
    allocated = torch.cuda.max_memory_allocated()
intact()
print(json.dumps([held, allocated]))
""",
        CUBLAS_WORKSPACE_CONFIG=":0:0",
    )
    assert 4 * MIB < held <= 1.5 * allocated  # backward's tensors are made on another thread, and elsewhere


def test_an_out_of_memory_in_backward_is_survived(tmp_path: Path) -> None:
    assert (
        run(
            TRAINING
            + """
memx.torch.enable(device_limit="8MiB", host_limit=0)
failed = 0
try:
    for step in train(1):
        pass
except torch.OutOfMemoryError:
    failed = 1
gc.collect()
torch.cuda.synchronize()
small = tensor(1)
intact()
print(json.dumps(failed))
""",
            CUBLAS_WORKSPACE_CONFIG=":0:0",
        )
        == 1
    )
