"""Trains one of several models, to be recorded; or on fake tensors, printing the bytes that they hold at most.

    python train_model.py MODELS.py NAME DEVICE [--arithmetic]

MODELS.py has ``CFG``: name -> (make, "sgd" or "adamw", iterations, description). An iteration takes the module and
returns its output and a target for ``lossf``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.append(str(Path(__file__).parent))
Arithmetic: Any = importlib.import_module("arithmetic").Arithmetic


def train(models: Any, name: str) -> None:
    """A step that makes the optimizer's state, and the iterations."""
    make, kind, iterations, _ = models.CFG[name]
    module = make()
    options = {"lr": 0.1, "momentum": 0.9} if kind == "sgd" else {"lr": 1e-3}
    optimizer = (torch.optim.SGD if kind == "sgd" else torch.optim.AdamW)(module.parameters(), foreach=False, **options)

    def step(iteration: Any) -> None:
        y, t = iteration(module)
        loss = models.lossf(y, t)
        del y, t
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step(iterations[0])
    gc.collect()
    for iteration in iterations:
        step(iteration)


def main() -> None:
    """What the command line asks for."""
    path, name, device = Path(sys.argv[1]), *sys.argv[2:4]
    sys.path.append(str(path.parent))
    models = importlib.import_module(path.stem)
    ones = torch.ones  # also called where a checkpoint runs its forward again, on a thread without the device below
    setattr(torch, "ones", lambda *shape, **how: ones(*shape, **{**how, "device": device}))  # noqa: B010
    with torch.device(device), contextlib.ExitStack() as modes:
        if "--arithmetic" not in sys.argv:
            return train(models, name)
        modes.enter_context(FakeTensorMode())
        arithmetic = modes.enter_context(Arithmetic(device, 1))
        train(models, name)
        return print(arithmetic.peak)


if __name__ == "__main__":
    main()
