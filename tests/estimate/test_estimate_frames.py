"""Which frame of a stack an allocation is told by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memx.estimate.raw import Raw

TORCH = Path("/lib/torch")


def told(*frames: tuple[str, int, str], mark: str = "") -> tuple[str, int, str, str, bool]:
    raw = Raw(operations=[(1, "mm", [], [1], 0, 1)])
    stack = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
    entry: dict[str, Any] = {
        "action": "alloc",
        "addr": 1,
        "size": 1,
        "stream": 0,
        "frames": stack,
        "user_metadata": mark,
    }
    raw.take([entry], TORCH)
    return raw.frames[raw.events[0][4]]


OWN = ("/home/train.py", 7, "train")


@pytest.mark.parametrize(
    ("frames", "mark", "expected"),
    [
        ([("/lib/torch/nn/linear.py", 1, "forward"), OWN], "", (*OWN, "forward", False)),
        # PyTorch's wrappers say nothing, nor do the frames of the mode that watches.
        ([("/lib/torch/module.py", 1, "_call_impl"), ("/lib/torch/f.py", 2, "gelu"), OWN], "", (*OWN, "gelu", False)),
        (
            [
                ("/lib/torch/_ops.py", 1, "run"),
                ("/lib/memx/estimate/naming.py", 2, "__torch_dispatch__"),
                ("/lib/torch/f.py", 3, "linear"),
                OWN,
            ],
            "1",
            (*OWN, "linear", False),
        ),
        ([OWN], "1", (*OWN, "mm", False)),
        # Code that torch.compile wrote is PyTorch's.
        ([("/tmp/torchinductor_me/ab/cd.py", 9, "call"), OWN], "", (*OWN, "call", False)),
        ([("/lib/torch/utils/checkpoint.py", 1, "backward"), OWN], "", (*OWN, "backward", True)),
        ([], "1", ("", 0, "", "mm", False)),
        ([], "addmm", ("", 0, "", "addmm", False)),
    ],
)
def test_the_programs_own_line(frames: list[Any], mark: str, expected: tuple[Any, ...]) -> None:
    assert told(*frames, mark=mark) == expected
