"""A program: a few steps of training a model, on the simulated device and then with fake tensors; prints both peaks.

The arithmetic knows nothing of the allocator but that it rounds sizes up to 512 bytes: it follows what operators
return and when the last owner of a storage goes. What an operator uses inside and frees again, it cannot see.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from arithmetic import Arithmetic
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import memx

STEPS = 3


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Patches(nn.Module):
    """A vision transformer's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 192, 16, 16), nn.Linear(192, 10)
        self.blocks = nn.Sequential(block(192), block(192))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(x).flatten(2).transpose(1, 2)).mean(1))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block, self.head = nn.Embedding(512, 128), block(128), nn.Linear(128, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(x)))


class Experts(nn.Module):
    """A mixture of experts: how many rows each gets depends on the data, and is none here."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(64, 4), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


def block(width: int, dropout: float = 0.0) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, batch_first=True, activation="gelu")


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def convolutions() -> nn.Module:
    body = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(16, 10))


SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
Model = tuple[Callable[[], nn.Module], tuple[int, ...], torch.dtype, type[torch.optim.Optimizer], dict[str, Any]]
FLAT, ROWS = (64, 256), (4, 128, 256)
MODELS: dict[str, Model] = {
    "mlp-sgd": (perceptron, FLAT, torch.float32, SGD, {}),
    "mlp-momentum": (perceptron, FLAT, torch.float32, SGD, {"momentum": 0.9}),
    "mlp-adamw-foreach": (perceptron, FLAT, torch.float32, ADAMW, {"foreach": True}),
    "mlp-adamw-fused": (perceptron, FLAT, torch.float32, ADAMW, {"fused": True}),
    "mlp-adamw-loop": (perceptron, FLAT, torch.float32, ADAMW, {"foreach": False}),
    "mlp-bfloat16": (perceptron, FLAT, torch.bfloat16, ADAMW, {"fused": True}),
    "block-adamw": (lambda: block(256), ROWS, torch.float32, ADAMW, {"fused": True}),
    "block-bfloat16": (lambda: block(256), ROWS, torch.bfloat16, SGD, {}),
    "checkpointed": (
        lambda: nn.Sequential(*(Checkpointed(block(256)) for _ in range(3))),
        ROWS,
        torch.float32,
        SGD,
        {},
    ),
    "lstm": (Recurrent, (4, 16, 64), torch.float32, SGD, {}),
    "patches": (Patches, (2, 3, 224, 224), torch.float32, ADAMW, {}),
    "convolutions": (convolutions, (4, 3, 32, 32), torch.float32, SGD, {}),
    # What these use inside an operator, or make of it there, fake tensors do not show.
    "block-dropout": (lambda: block(256, 0.1), ROWS, torch.float32, ADAMW, {"fused": True}),
    "text": (Text, (4, 32), torch.int64, ADAMW, {}),
    "experts": (Experts, (32, 64), torch.float32, SGD, {}),
}


def train(model: Model) -> None:
    make, shape, dtype, kind, options = model
    with torch.device("cuda"):
        torch.set_default_dtype(torch.float32 if dtype == torch.int64 else dtype)
        module = make()
        torch.set_default_dtype(torch.float32)
        inputs = torch.zeros(shape, dtype=dtype)
    optimizer = kind(module.parameters(), lr=0.1, **options)
    for _ in range(STEPS):
        loss = module(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def measured(model: Model) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    train(model)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def computed(model: Model) -> int | None:
    """By arithmetic; None where the shapes depend on data."""
    try:
        with FakeTensorMode(), Arithmetic() as arithmetic:
            train(model)
    except torch._subclasses.fake_tensor.DynamicOutputShapeException:
        return None
    return arithmetic.peak


def result(model: Model) -> dict[str, Any]:
    try:
        return {"measured": measured(model), "computed": computed(model), "error": ""}
    except Exception:
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    found: dict[str, Any] = {name: result(model) for name, model in MODELS.items()}
    found["races"] = memx.sim.race_count()
    json.dump(found, sys.stdout)
