"""The models' training, run once for all tests that look at it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .child import start

PROGRAM = Path(__file__).parent / "models.py"


@pytest.fixture(scope="session")
def results() -> dict[str, Any]:
    """Of all models with PyTorch's own allocator, from one run."""
    program = [sys.executable, "-W", "ignore", str(PROGRAM)]
    done = start(
        ["-m", "memx", "sim", "run", "--quiet", "--memory", "2GiB", "--", *program],
        CUBLAS_WORKSPACE_CONFIG=":0:0",  # without its workspace, which is in no arithmetic
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
