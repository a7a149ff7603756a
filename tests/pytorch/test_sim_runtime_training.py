"""Training on the simulated device: it runs, and its memory is what arithmetic with fake tensors says, to the byte."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import memx

pytestmark = pytest.mark.torch_cuda

PACKAGE = Path(memx.__file__).parent
PROGRAM = Path(__file__).parent / "models.py"
MODELS = re.findall(r'^    "([\w-]+)": \(', PROGRAM.read_text(), re.MULTILINE)
# How far the two may be apart where an operator allocates something inside.
INSIDE_OPERATORS = {"block-dropout": 0.001, "text": 0.03, "experts": None}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Of all models, from one run."""
    program = [sys.executable, "-W", "ignore", str(PROGRAM)]
    done = subprocess.run(
        [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--memory", "2GiB", "--", *program],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=PACKAGE / "data",
        # Without its workspace, which is in no arithmetic.
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "CUBLAS_WORKSPACE_CONFIG": ":0:0"},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("model", MODELS)
def test_training_takes_the_memory_that_arithmetic_says(results: dict[str, Any], model: str) -> None:
    result = results[model]
    assert not result["error"], result["error"]
    tolerance = INSIDE_OPERATORS.get(model, 0)
    if tolerance is not None:
        assert result["measured"] == pytest.approx(result["computed"], rel=tolerance, abs=0)


def test_training_leaves_no_race(results: dict[str, Any]) -> None:
    assert results["races"] == 0
