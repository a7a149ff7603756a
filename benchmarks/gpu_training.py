"""Training with PyTorch's allocators and with memx on one GPU: time of a step and peak of memory, in one run.

    python benchmarks/gpu_training.py [--output training.json]

A transformer and a convolutional network, each with PyTorch's native allocator, its expandable segments, memx with all
of the memory and memx with half of what the first reserved, the rest on host pages. Every allocator has a process of
its own; they take turns, and each number is the median of the rounds. Without a GPU it runs on the simulated device,
where the peaks are exact and the times say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

ROUNDS = 3
STEPS = 20
WARM_UP = 5
NATIVE, EXPANDABLE, MEMX, HALF = "torch-native", "torch-expandable", "memx", "memx, half"


def model_and_input(name: str, simulated: bool) -> tuple[Any, Any]:
    """A model on the device and its input."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == "transformer":
        width, layers, batch = (64, 2, 2) if simulated else (1024, 8, 16)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, activation="gelu")
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda(), torch.randn(
            batch, 64 if simulated else 512, width
        ).cuda()
    channels, size, batch = (8, 16, 2) if simulated else (64, 128, 64)
    body: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1)]
    for _ in range(6):
        body += [nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)]
    return nn.Sequential(*body).cuda(), torch.randn(batch, 3, size, size).cuda()


def work(allocator: str, name: str, limit: int) -> dict[str, Any]:
    """One process: some steps of training, timed."""
    import memx
    from memx.replay.device import has_real_driver

    simulated = not has_real_driver()
    if simulated:
        memx.simulate(memory="4GiB")
    if allocator in (NATIVE, EXPANDABLE):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{allocator == EXPANDABLE}"
    import torch

    if allocator in (MEMX, HALF):
        memx.torch.enable(device_limit=limit or None)
    model, inputs = model_and_input(name, simulated)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loss = torch.zeros(())
    start = 0.0
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if allocator == HALF:
            memx.torch.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {
        "device": torch.cuda.get_device_name(),
        "simulated": simulated,
        "step_ms": 1000 * seconds / STEPS,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "loss": loss.item(),
    }


def apart(allocator: str, name: str, limit: int) -> dict[str, Any]:
    """The same in a fresh process."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", allocator, name, str(limit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"failed": done.returncode}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Run all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        allocator, name, limit = arguments.child
        print(json.dumps(work(allocator, name, int(limit))))
        return 0
    results: dict[str, dict[str, Any]] = {}
    for name in ("transformer", "convolutions"):
        runs: dict[str, list[dict[str, Any]]] = {}
        half = 0
        for _ in range(ROUNDS):
            for allocator in (NATIVE, EXPANDABLE, MEMX, HALF):
                runs.setdefault(allocator, []).append(apart(allocator, name, half if allocator == HALF else 0))
                half = half or runs[NATIVE][0].get("peak_reserved_bytes", 0) // 2
        for allocator, found in runs.items():
            good = [run for run in found if "failed" not in run]
            if not good:
                results[f"{name}, {allocator}"] = found[0]
                continue
            row = {**good[0], "step_ms": statistics.median(run["step_ms"] for run in good)}
            results[f"{name}, {allocator}"] = row
            print(
                f"{name:14}{allocator:18}{row['step_ms']:10.2f} ms a step"
                f"{row['peak_allocated_bytes'] >> 20:8} MiB allocated{row['peak_reserved_bytes'] >> 20:8} MiB reserved"
                f"   loss {row['loss']:.6g}{'   simulated' if row['simulated'] else ''}"
            )
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump(results, file, indent=2)
    return int(any("failed" in row for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
