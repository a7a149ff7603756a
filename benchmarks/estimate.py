"""What `memx estimate` says of models in common use, beside arithmetic with fake tensors and PyTorch's own counters.

    python benchmarks/estimate.py [NAMES...] [--output table.md] [--gpu]

Each model is a program of benchmarks/estimate_models.py. The counters are those of PyTorch's native allocator in the
estimated process. With --gpu the same programs run on this machine's GPU, so that the error is known.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import estimate_models

PROGRAM = str(Path(estimate_models.__file__))
MIB = 1 << 20
COLUMNS = (
    "model, estimate, fake tensors, difference, of it workspaces, PyTorch requested, allocated, reserved, expandable, "
    "memx, planned, smallest: native, expandable, memx, program s, all s, memory"
)


def estimated(name: str, gpu: bool) -> tuple[dict[str, Any], float]:
    """The report, and the most memory that a process of it had."""
    options = ["--gpu", "--quick"] if gpu else []
    command = [sys.executable, "-m", "memx", "estimate", "--json", *options, "--", sys.executable, PROGRAM, name]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{name}: memx estimate ended with {status}")
    return json.loads(text), usage.ru_maxrss / 1024


def by_arithmetic(name: str) -> int:
    """The peak by fake tensors."""
    simulated = [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--"]
    command = [*simulated, sys.executable, "-W", "ignore", PROGRAM, name, "--arithmetic"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def row(name: str, gpu: bool) -> list[str]:
    """One model's numbers, in MiB."""
    fake = by_arithmetic(name)
    report, most = estimated(name, gpu)
    peak, counters = report["peak_bytes"], report["torch_counters"]
    assert counters["requested_bytes"] <= peak
    reserved, smallest = report["reserved_bytes"], report["smallest_device_bytes"]
    sizes = [
        peak,
        fake,
        peak - fake,
        report["by_category"]["workspaces"],
        counters["requested_bytes"],
        counters["allocated_bytes"],
        counters["reserved_bytes"],
        reserved.get("torch-expandable", 0),
        reserved.get("memx", 0),
        report["planned_bytes"],
        smallest.get("torch-native", 0),
        smallest.get("torch-expandable", 0),
        smallest.get("memx", 0),
    ]
    seconds = report["seconds"]
    shown = [f"{nbytes / MIB:.1f}" for nbytes in sizes]
    return [name, *shown, f"{seconds['program']:.0f}", f"{seconds['all']:.0f}", f"{most:.0f}"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    names = COLUMNS.split(", ")
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (names, ["---"] * len(names), *rows))


def main() -> None:
    """Run all models, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or estimate_models.MODELS:
        start = time.perf_counter()
        rows.append(row(name, arguments.gpu))
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
        if arguments.output:
            arguments.output.write_text(table(rows) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
