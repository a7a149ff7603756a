"""PyTorch's CUDA build on the simulated device: the checks of ``on_device``, for each of its allocators."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from .child import start

pytestmark = pytest.mark.torch_cuda

PROGRAM = Path(__file__).parent / "on_device.py"
CHECKS = re.findall(r"^def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module", params=["native", "expandable"])
def failures(request: pytest.FixtureRequest) -> dict[str, str]:
    """What each check found wrong, from one run of all."""
    program = [sys.executable, str(PROGRAM)]
    expandable = f"expandable_segments:{request.param == 'expandable'}"
    done = start(
        ["-m", "memx", "sim", "run", "--quiet", "--memory=1GiB", "--devices=2", "--", *program],
        PYTORCH_CUDA_ALLOC_CONF=expandable,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("check", CHECKS)
def test_on_the_simulated_device(failures: dict[str, str], check: str) -> None:
    assert not failures[check], failures[check]
