"""A training program for each model that benchmarks/estimate.py looks at.

    python benchmarks/estimate_models.py NAME [--arithmetic]

trains one on "cuda"; with --arithmetic it is run on fake tensors instead, and the bytes that its tensors hold at most
are printed. That knows what operators return and when the last owner of a storage goes, and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "pytorch"))
Arithmetic: Any = importlib.import_module("arithmetic").Arithmetic

STEPS = 4


class Bottleneck(nn.Module):
    def __init__(self, before: int, middle: int, stride: int) -> None:
        super().__init__()
        after = 4 * middle
        self.c1, self.n1 = nn.Conv2d(before, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.c2, self.n2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
        self.c3, self.n3 = nn.Conv2d(middle, after, 1, bias=False), nn.BatchNorm2d(after)
        self.down: nn.Module = nn.Identity()
        if before != after or stride != 1:
            self.down = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.n1(self.c1(x)).relu_()
        y = self.n2(self.c2(y)).relu_()
        return self.n3(self.c3(y)).add_(self.down(x)).relu_()


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        layers, width = [], 64
        for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                layers.append(Bottleneck(width, middle, stride if number == 0 else 1))
                width = 4 * middle
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(self.layers(x).mean((2, 3)))


class Experts(nn.Module):
    """Each token goes to one of eight, evenly: routing by data would leave all of them without tokens here."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 8)
        self.experts = nn.ModuleList(feed_forward(width) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights = self.gate(flat).softmax(-1)
        order = weights[:, 0].argsort()
        out = torch.zeros_like(flat)
        for number, rows in enumerate(order.chunk(8)):
            out = out.index_add(0, rows, self.experts[number](flat[rows]) * weights[rows, number, None])
        return out.view_as(x)


def feed_forward(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float, experts: bool = False) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = Experts(width) if experts else feed_forward(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        y = self.out(y.transpose(1, 2).reshape(batch, length, width))
        x = x + functional.dropout(y, self.dropout)
        return x + functional.dropout(self.inner(self.norm2(x)), self.dropout)


class Language(nn.Module):
    """GPT-2's shape, or BERT's."""

    def __init__(
        self,
        width: int,
        heads: int,
        depth: int,
        *,
        vocabulary: int = 50257,
        length: int = 512,
        causal: bool = True,
        checkpointed: bool = False,
        experts: bool = False,
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        made = (Block(width, heads, causal, 0.1, experts and number % 2 == 1) for number in range(depth))
        self.blocks, self.norm = nn.ModuleList(made), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            y = torch.utils.checkpoint.checkpoint(block, y, use_reentrant=False) if self.checkpointed else block(y)
        return self.head(self.norm(y)).flatten(0, 1)


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 768)), nn.Parameter(torch.zeros(1, 197, 768))
        self.blocks = nn.Sequential(*(Block(768, 12, False, 0.1) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.first.expand(len(y), -1, -1), y], 1) + self.places
        return self.head(self.norm(self.blocks(y))[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(10000, 512), nn.LSTM(512, 512, 2), nn.Linear(512, 10000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(x.T))[0]).flatten(0, 1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(self.pair(before, after) for before, after in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1])
        self.back = nn.ModuleList(self.pair(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(64, 21, 1)

    @staticmethod
    def pair(before: int, after: int) -> nn.Module:
        layers: list[nn.Module] = []
        for width in (before, after):
            layers += [nn.Conv2d(width, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, pair in enumerate(self.down):
            x = pair(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for level in reversed(range(4)):
            x = self.back[level](torch.cat([self.up[level](x), kept[level]], 1))
        return self.head(x)


def words(batch: int, length: int) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    return lambda: (torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch * length, dtype=torch.long))


def images(batch: int, side: int, per_pixel: bool = False) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    shape = (batch, side, side) if per_pixel else (batch,)
    return lambda: (torch.zeros(batch, 3, side, side), torch.zeros(shape, dtype=torch.long))


SGD = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
ADAMW, FUSED = (torch.optim.AdamW, {"lr": 1e-3}), (torch.optim.AdamW, {"lr": 1e-3, "fused": True})
LOOP = (torch.optim.AdamW, {"lr": 1e-3, "foreach": False})
GPT2, MEDIUM = (768, 12, 12), (1024, 16, 24)
#: Module, batch, optimizer, whether under bfloat16 autocast.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]], Any, bool]] = {
    "ResNet-50, batch 32, SGD": (ResNet50, images(32, 224), SGD, False),
    "U-Net, batch 4 of 256x256, SGD": (UNet, images(4, 256, True), SGD, False),
    "ViT-B/16, batch 16, AdamW": (Vision, images(16, 224), ADAMW, False),
    "GPT-2 small, 4x512, AdamW": (lambda: Language(*GPT2), words(4, 512), ADAMW, False),
    "GPT-2 small, 4x512, AdamW foreach=False": (lambda: Language(*GPT2), words(4, 512), LOOP, False),
    "GPT-2 small, 4x512, bf16 autocast, fused AdamW": (lambda: Language(*GPT2), words(4, 512), FUSED, True),
    "GPT-2 medium, 4x512, fused AdamW": (lambda: Language(*MEDIUM), words(4, 512), FUSED, False),
    "GPT-2 medium, 4x512, checkpointed, fused AdamW": (
        lambda: Language(*MEDIUM, checkpointed=True),
        words(4, 512),
        FUSED,
        False,
    ),
    "BERT-base, 16x128, AdamW": (
        lambda: Language(*GPT2, vocabulary=30522, causal=False),
        words(16, 128),
        ADAMW,
        False,
    ),
    "LSTM, 2 layers of 512, 32x64, AdamW": (Recurrent, words(32, 64), ADAMW, False),
    "Mixture of 8 experts, 4x256, AdamW": (
        lambda: Language(512, 8, 8, vocabulary=32000, experts=True),
        words(4, 256),
        ADAMW,
        False,
    ),
}


def train(name: str, steps: int = STEPS) -> None:
    make, batch, (kind, options), mixed = MODELS[name]
    with torch.device("cuda"):
        module = make()
        optimizer = kind(module.parameters(), **options)
        for _ in range(steps):
            x, target = batch()
            with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
                out = module(x)
                loss = functional.cross_entropy(out, target)
            del x, target, out
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del loss


def main() -> None:
    name = sys.argv[1]
    if "--arithmetic" not in sys.argv:
        return train(name)
    with FakeTensorMode(), Arithmetic() as arithmetic:
        train(name, 2)
    return print(arithmetic.peak)


if __name__ == "__main__":
    main()
