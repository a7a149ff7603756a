"""PyTorch and CuPy on memx with kernels that compute: results are those of PyTorch's own allocator, or of NumPy.

Each program runs in a process of its own, because a framework takes one allocator a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import memx

from .conftest import Device

pytestmark = pytest.mark.gpu

PACKAGE = Path(memx.__file__).parent
MIB = 1 << 20

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
needs_cupy = pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed")

TORCH = """
import gc, json, sys
import memx, torch
from torch import nn
MIB = 1 << 20
def tensor(mib, **how):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda", **how)
def native():
    return memx.torch.resource().native
def place_of(t):
    return next(place for address, *_, state, place, _, _ in native().blocks() if address == t.data_ptr())
def numbers(n, seed=0, dtype=torch.float32):
    return torch.randint(-1000, 1000, (n,), generator=torch.Generator().manual_seed(seed)).to(dtype)
def train(steps, width=256, batch=8):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True), 2, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(batch, 64, width, generator=torch.Generator().manual_seed(1)).cuda()
    losses = []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
"""


def run(code: str, before: str = TORCH) -> Any:
    """What the program prints last, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", before + code],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=PACKAGE / "data",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def gpu(device: Device) -> Device:
    """A device whose kernels compute."""
    if memx.sim.active():
        pytest.skip("frameworks' kernels compute nothing on the simulated device")
    return device


def needs_host_mapping(device: Device) -> None:
    if not device.host_mapping:
        pytest.skip("this driver maps no host memory")


@needs_torch
def test_training_is_what_it_is_without_memx(gpu: Device) -> None:
    plain = run("print(json.dumps(train(5)))")
    ours = run("memx.torch.enable(); losses = train(5); native().check(); print(json.dumps(losses))")
    assert ours == pytest.approx(plain, rel=1e-5)
    assert plain[-1] < plain[0]


@needs_torch
def test_oversubscribed_training_is_what_it_is_with_room(gpu: Device) -> None:
    needs_host_mapping(gpu)
    plain = run("print(json.dumps(train(4)))")
    ours, host, reserved = run(
        """
memx.torch.enable(device_limit="16MiB", host_limit="1GiB")
losses = []
losses = train(4)
stats = native().statistics()
native().check()
print(json.dumps([losses, stats["host_bytes.peak"], stats["reserved_bytes.peak"]]))
"""
    )
    assert ours == pytest.approx(plain, rel=1e-5)
    assert host > 0
    assert reserved <= 16 * MIB


@needs_torch
def test_host_born_tensors_under_copies_of_every_kind(gpu: Device) -> None:
    needs_host_mapping(gpu)
    wrong = run(
        """
memx.torch.enable(device_limit="64MiB", host_limit="256MiB")
fill = tensor(56)
n = 8 * MIB
source = numbers(n)
host = torch.empty(n, dtype=torch.float32, device="cuda")
wrong = [] if place_of(host) == "host" else ["born on the " + place_of(host)]
def check(name, got):
    torch.cuda.synchronize()
    if not torch.equal(got.cpu(), source):
        wrong.append(name)
host.copy_(source)
check("pageable to host-born", host)
host.zero_()
host.copy_(source.pin_memory(), non_blocking=True)
check("pinned to host-born", host)
back = torch.empty(n).pin_memory()
back.copy_(host, non_blocking=True)
check("host-born to pinned", back)
del fill
there = torch.empty(n, dtype=torch.float32, device="cuda")
there.copy_(host)
check("host-born to device", there)
twin = torch.empty_like(host)
twin.copy_(there)
check("device to its twin", twin)
host.zero_()
host.copy_(there)
check("device to host-born", host)
host.add_(1).mul_(2).sub_(2).div_(2)
check("arithmetic in place", host)
square = host[: 4 * MIB].view(2048, 2048)
if not torch.equal(square.t().contiguous().t().cpu(), source[: 4 * MIB].view(2048, 2048)):
    wrong.append("strided")
del there, twin, square
memx.torch.step()
if place_of(host) != "device":
    wrong.append("a step did not bring it")
check("after it came to the device", host)
native().check()
print(json.dumps(wrong))
"""
    )
    assert wrong == []


@needs_torch
def test_host_born_tensors_under_atomics(gpu: Device) -> None:
    needs_host_mapping(gpu)
    assert run(
        """
memx.torch.enable(device_limit="32MiB", host_limit="128MiB")
fill = tensor(28)
counts = torch.zeros(2 * MIB, dtype=torch.int32, device="cuda")
where = torch.randint(0, 2 * MIB, (1 << 20,), generator=torch.Generator().manual_seed(3))
counts.index_add_(0, where.cuda(), torch.ones(1 << 20, dtype=torch.int32, device="cuda"))
want = torch.bincount(where, minlength=2 * MIB).to(torch.int32)
print(json.dumps([place_of(counts), torch.equal(counts.cpu(), want)]))
"""
    ) == ["host", True]


@needs_torch
def test_graphs_over_device_and_host_born_tensors(gpu: Device) -> None:
    needs_host_mapping(gpu)
    right = run(
        """
memx.torch.enable(device_limit="64MiB", host_limit="256MiB")
x = torch.zeros(MIB, device="cuda")
fill = tensor(56)
y = torch.zeros(4 * MIB, device="cuda")
kinds = [place_of(x), place_of(y)]
def work():
    a = x * 2
    b = a + 1
    del a
    c = b * b
    y[:MIB] = c
    return c
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    work()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = work()
right = []
for value in (1.0, 5.0, -3.0):
    x.fill_(value)
    graph.replay()
    others = [torch.full((MIB // 4,), 7.0, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    want = (2 * value + 1) ** 2
    right.append(bool((out == want).all()) and bool((y[:MIB] == want).all()))
del others
graph.reset()
native().check()
print(json.dumps([kinds, right]))
"""
    )
    assert right == [["device", "host"], [True, True, True]]


@needs_torch
def test_streams_reuse_memory_without_a_race(gpu: Device) -> None:
    assert run(
        """
memx.torch.enable(device_limit="256MiB", host_limit=0, reuse="mutual")
streams = [torch.cuda.Stream() for _ in range(4)]
right = True
for i in range(200):
    results = []
    for s, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            a = torch.full((MIB,), float(s + i), device="cuda")
            b = a.sin().add_(1)
            c = b.roll(1)
            del a, b
            results.append((s, c))
    for s, c in results:
        torch.cuda.current_stream().wait_stream(streams[s])
        c.record_stream(torch.cuda.current_stream())
    want = [(torch.full((1,), float(s + i)).sin() + 1).item() for s, _ in results]
    got = [(c.min().item(), c.max().item()) for _, c in results]
    right = right and all(abs(low - w) < 1e-5 and abs(high - w) < 1e-5 for w, (low, high) in zip(want, got))
native().check()
print(json.dumps(right))
"""
    )


@needs_torch
def test_out_of_memory_is_survived(gpu: Device) -> None:
    assert run(
        """
memx.torch.enable(device_limit="64MiB", host_limit=0)
a = numbers(4 * MIB).cuda()
for _ in range(100):
    try:
        tensor(1024)
    except torch.OutOfMemoryError:
        pass
print(json.dumps(torch.equal(a.cpu(), numbers(4 * MIB)) and torch.cuda.memory_stats()["num_ooms"] == 100))
"""
    )


@needs_torch
def test_a_pool_under_pytorchs_own_allocator(gpu: Device) -> None:
    assert run(
        """
with memx.torch.pool(device_limit="64MiB", host_limit="64MiB") as pool:
    kept = [numbers(4 * MIB, seed).cuda() for seed in range(6)]
print(json.dumps([all(torch.equal(t.cpu(), numbers(4 * MIB, seed)) for seed, t in enumerate(kept)),
                  all(native().covers(t.data_ptr()) for t in kept)]))
"""
    ) == [True, True]


CUPY = """
import json, memx, cupy, numpy as np
MIB = 1 << 20
"""


@needs_cupy
@pytest.mark.parametrize("below_pool", [False, True])
def test_cupy_computes_on_memx(gpu: Device, below_pool: bool) -> None:
    assert run(
        f"""
memx.cupy.enable(device_limit="256MiB", host_limit=0, below_pool={below_pool})
a = cupy.arange(MIB, dtype="f4")
b = (a * 3 + 1)[::-1]
want = (np.arange(MIB, dtype="f4") * 3 + 1)[::-1]
right = bool((cupy.asnumpy(b) == want).all())
with cupy.cuda.Stream(non_blocking=True) as stream:
    c = cupy.sort(b)
    right = right and bool((c.get(stream=stream) == np.sort(want)).all())
try:
    cupy.empty(1 << 30, "u1")
    right = False
except cupy.cuda.memory.OutOfMemoryError:
    pass
del a, b, c
cupy.cuda.Device().synchronize()
memx.cupy.resource().native.check()
print(json.dumps(right))
""",
        CUPY,
    )


@needs_cupy
def test_cupy_arrays_born_on_the_host(gpu: Device) -> None:
    needs_host_mapping(gpu)
    assert run(
        """
mr = memx.MemoryResource(0, device_limit="32MiB", host_limit="128MiB")
with memx.cupy.using(mr):
    fill = cupy.zeros(28 * MIB, "u1")
    a = cupy.arange(4 * MIB, dtype="i8")
    total = int(a.sum())
print(json.dumps([mr.statistics()["host_bytes.current"] > 0, total]))
""",
        CUPY,
    ) == [True, 4 * MIB * (4 * MIB - 1) // 2]
