"""The models' training, run once for all tests that look at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import memx

PROGRAM = Path(__file__).parent / "models.py"
PACKAGE = Path(memx.__file__).parent


@pytest.fixture(scope="session")
def results() -> dict[str, Any]:
    """Of all models with PyTorch's own allocator, from one run."""
    program = [sys.executable, "-W", "ignore", str(PROGRAM)]
    done = subprocess.run(
        [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--memory", "2GiB", "--", *program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=PACKAGE / "data",
        # Without its workspace, which is in no arithmetic.
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "CUBLAS_WORKSPACE_CONFIG": ":0:0"},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
