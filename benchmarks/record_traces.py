"""Why traces recorded from PyTorch's CUDA build peak where they do, beside traces of the same models by arithmetic.

    python benchmarks/record_traces.py MODELS.py TRACES...

MODELS.py has the models and their batches (CFG: name -> (make, optimizer, iterations, description)) and a trace of one
name each was made with fake tensors on the CPU: storages that operators return, nothing that they use inside. Each is
made again so, on the CPU and with CUDA's operators; and each model trains under `memx record` on the simulated device,
without cuBLAS's workspace, which is in no arithmetic. The second table has the operations whose buffers at the peak
differ between the given trace and the recorded one: all of them, so that they add up to the difference.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from memx.trace import Trace

TESTS = Path(__file__).resolve().parents[1] / "tests" / "pytorch"
sys.path.append(str(TESTS))
peak_of: Any = importlib.import_module("holders").peak_of

MIB = 1 << 20


def command(models: Path, name: str, device: str, *more: str) -> list[str]:
    """A process that trains one of the models."""
    return [sys.executable, "-W", "ignore", str(TESTS / "train_model.py"), str(models), name, device, *more]


def recorded(models: Path, name: str) -> Any:
    """The peak of a trace recorded now."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "t.jsonl.gz"
        record = ["record", "--simulate", "--quiet", "--operations", "-o", str(trace), "--"]
        program = command(models, name, "cuda")
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":0:0"}
        subprocess.run([sys.executable, "-m", "memx", *record, *program], check=True, env=environment)
        return peak_of(Trace(trace))


def by_arithmetic(models: Path, name: str, device: str) -> int:
    """The peak by fake tensors."""
    simulated = [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--"]
    program = command(models, name, device, "--arithmetic")
    return int(subprocess.run([*simulated, *program], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print both tables."""
    models, *traces = (Path(argument) for argument in sys.argv[1:])
    models = models.resolve()
    peaks, holders = [], []
    for path in traces:
        name = path.name.partition(".")[0]
        given, found = peak_of(Trace(path)), recorded(models, name)
        again, cuda = (by_arithmetic(models, name, device) for device in ("cpu", "cuda"))
        numbers = (given.bytes, again, cuda, found.without_insides, found.bytes)
        peaks.append(f"| {name} | {' | '.join(f'{n:,}' for n in numbers)} | {found.bytes / given.bytes:.4f} |")
        makers = sorted({*given.by_maker, *found.by_maker}, key=lambda m: found.by_maker[m] - given.by_maker[m])
        for maker in makers:
            before, now = given.by_maker[maker], found.by_maker[maker]
            if before != now:
                holders.append(f"| {name} | {maker} | {before / MIB:.2f} | {now / MIB:.2f} | {now - before:+,} |")
        holders.append(f"| {name} | **together** | | | {found.bytes - given.bytes:+,} |")
        print(peaks[-1], file=sys.stderr, flush=True)
    print("| model | given | again | CUDA's operators | recorded, without insides | recorded | recorded / given |")
    print("| --- " * 7 + "|", *peaks, sep="\n")
    print("\n| model | made by | given, MiB | recorded, MiB | bytes more |\n| --- | --- | --- | --- | --- |")
    print(*holders, sep="\n")


if __name__ == "__main__":
    main()
