"""Whether traces recorded from PyTorch reach the peaks of traces that were made of the same models by arithmetic.

    python benchmarks/record_traces.py MODELS.py TRACES...

MODELS.py has the models and their batches (CFG: name -> (make, optimizer, iterations, description)) and a trace of one
name each was made with fake tensors: storages that operators return, nothing that they use inside. Here each model
trains under `memx record` on the simulated device, without cuBLAS's workspace, which is in no arithmetic.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from memx.trace import Trace

MIB = 1 << 20
PROGRAM = """
import gc, sys
sys.path.insert(0, sys.argv[1])
import importlib, torch
models = importlib.import_module(sys.argv[2])
make, kind, iterations, _ = models.CFG[sys.argv[3]]
ones = torch.ones  # also called where a checkpoint runs its forward again, on a thread without the device below
torch.ones = lambda *shape, **how: ones(*shape, device="cuda", **how)
with torch.device("cuda"):
    m = make()
    options = {"lr": 0.1, "momentum": 0.9} if kind == "sgd" else {"lr": 1e-3}
    o = (torch.optim.SGD if kind == "sgd" else torch.optim.AdamW)(m.parameters(), foreach=False, **options)
    def step(f):
        y, t = f(m)
        loss = models.lossf(y, t)
        del y, t
        loss.backward()
        del loss
        o.step()
        o.zero_grad(set_to_none=True)
    step(iterations[0])
    gc.collect()
    for f in iterations:
        step(f)
"""


def recorded_peak(models: Path, name: str) -> int:
    """The peak of a trace recorded now."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "t.jsonl.gz"
        command = [sys.executable, "-m", "memx", "record", "--simulate", "--quiet", "-o", str(trace), "--"]
        program = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(models.parent), models.stem, name]
        subprocess.run([*command, *program], check=True, env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":0:0"})
        return Trace(trace).peak_live_bytes()


def main() -> None:
    """Print a table."""
    models, *traces = (Path(argument) for argument in sys.argv[1:])
    print("| model | by arithmetic, MiB | recorded, MiB | ratio |\n| --- | --- | --- | --- |")
    for path in traces:
        name = path.name.partition(".")[0]
        expected = Trace(path).peak_live_bytes()
        found = recorded_peak(models.resolve(), name)
        print(f"| {name} | {expected / MIB:.1f} | {found / MIB:.1f} | {found / expected:.4f} |", flush=True)


if __name__ == "__main__":
    main()
