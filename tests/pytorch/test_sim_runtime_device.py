"""PyTorch's CUDA build on the simulated device: the checks of ``on_device``, for each of its allocators."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memx

pytestmark = pytest.mark.torch_cuda

PROGRAM = Path(__file__).parent / "on_device.py"
CHECKS = re.findall(r"^def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)
ALLOCATORS = {"native": "expandable_segments:False", "expandable": "expandable_segments:True"}


@functools.cache
def failures(allocator: str) -> dict[str, str]:
    program = [sys.executable, str(PROGRAM)]
    root = Path(memx.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--memory=1GiB", "--devices=2", "--", *program],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root), "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator]},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("check", CHECKS)
def test_on_the_simulated_device(allocator: str, check: str) -> None:
    failed = failures(allocator)[check]
    assert not failed, failed
