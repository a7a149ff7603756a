"""Small models, each for one kind of operation that is another one on a GPU, in the form that train_model.py takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

LAYERS, ELEMENTS = 4, 1 << 18
CHANNELS, SIDE = 16, 64


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        for _ in range(LAYERS):
            x = functional.dropout(x, 0.5)
        return x


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return h


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(CHANNELS, 1, 3, 1, 1), nn.BatchNorm2d(1))


def lossf(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return (y - t).square().mean()


def batch(*shape: int) -> Any:
    return lambda module: (module(torch.randn(*shape)), torch.zeros(1))


CFG: dict[str, Any] = {
    "dropout": (Dropping, "adamw", [batch(ELEMENTS)] * 2, "masks of one byte, or of four"),
    "cells": (Cells, "adamw", [batch(16, 8, 32)] * 2, "one kernel for a cell, or many"),
    "convolution": (convolution, "sgd", [batch(2, CHANNELS, SIDE, SIDE)] * 2, "an unfolded image inside"),
}
