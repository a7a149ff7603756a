"""Programs in processes of their own: PyTorch takes one allocator a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import memx

PACKAGE = Path(memx.__file__).parent

_BEFORE = """
import gc, json
import memx
memx.simulate(memory={memory!r}, host_memory="4GiB", page="2MiB", devices={devices})
import torch
MIB = 1 << 20
def tensor(mib, **how):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=how.pop("device", "cuda"), **how)
def native(device=0):
    return memx.torch.resource(device).native
def intact():
    torch.cuda.synchronize()
    for resource in memx._native.torch_resources().values():
        resource.check()
    assert memx.sim.races() == [], memx.sim.races()
"""


def start(program: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that imports the memx under test, from outside the source tree."""
    return subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=PACKAGE / "data",
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
        check=False,
    )


def run(code: str, memory: str = "512MiB", devices: int = 1, quiet: bool = True, **environment: str) -> Any:
    """What the program prints last, as JSON; it must end well and, if `quiet`, say nothing on standard error."""
    done = start(["-W", "ignore", "-c", _BEFORE.format(memory=memory, devices=devices) + code], **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == "" or not quiet, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None
