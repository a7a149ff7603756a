"""PyTorch's CUDA build meets the simulated device inside a process: before the import, after it, in a child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memx

pytestmark = pytest.mark.torch_cuda

PACKAGE = Path(memx.__file__).parent


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    without = {key: value for key, value in os.environ.items() if key not in ("MEMX_SIMULATE", "LD_PRELOAD")}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=PACKAGE / "data",
        env={**without, "PYTHONPATH": str(PACKAGE.parent), **environment},
    )


def test_simulate_before_the_import() -> None:
    done = run(
        """
import memx
memx.simulate(memory="64MiB", devices=2)
from cuda.core import Device
device = Device(1)
device.set_current()
device.sync()
import torch
print(torch.cuda.device_count(), torch.cuda.mem_get_info(1), torch.backends.cudnn.enabled)
print(torch.ones(5).cuda().cpu().tolist(), torch.nn.LSTM(8, 8).cuda()(torch.zeros(2, 2, 8).cuda())[0].shape)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "2 (67108864, 67108864) False",
        "[1.0, 1.0, 1.0, 1.0, 1.0] torch.Size([2, 2, 8])",
    ]


def test_simulate_after_the_import_says_what_to_do() -> None:
    done = run("import torch, memx; memx.simulate(memory='64MiB'); print(memx.sim.active())")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
    assert "call memx.simulate() before `import torch`" in done.stderr
    assert "memx sim run" in done.stderr


def test_the_environment_does_it_at_the_import_of_memx() -> None:
    script = "import memx, torch; print(torch.cuda.mem_get_info())"
    done = run(script, MEMX_SIMULATE="memory=96MiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"({96 << 20}, {96 << 20})\n"


def test_a_program_and_its_children_under_memx_sim_run(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text("import torch; print(torch.cuda.get_device_properties(0).total_memory)\n")
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"import subprocess, sys\nimport torch\nprint(torch.zeros(3, device='cuda').shape, flush=True)\n"
        f"sys.exit(4 + subprocess.call([sys.executable, {str(child)!r}]))\n"
    )
    script = f"""
import subprocess, sys
command = [sys.executable, "-m", "memx", "sim", "run", "--memory=80MiB", "--", sys.executable, {str(parent)!r}]
sys.exit(subprocess.call(command))
"""
    done = run(script)
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines() == ["torch.Size([3])", str(80 << 20)]
    assert done.stderr.splitlines() == ["memx: simulated device of 80 MiB; kernels compute nothing"]


def test_a_bad_setting_is_said_and_there_is_no_device() -> None:
    libraries = ":".join(str(path) for path in memx.sim.libraries())
    script = "import torch, warnings; warnings.simplefilter('ignore'); print(torch.cuda.is_available())"
    done = run(script, LD_PRELOAD=libraries, MEMX_SIMULATE="memory=lots")
    assert done.stdout == "False\n"
    assert "MEMX_SIMULATE=memory=lots: 'memory=lots' has a value of the wrong kind" in done.stderr


def test_compiled_models_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, memx\n"
        "model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()\n"
        "torch.compile(model)(torch.zeros(4, 64, device='cuda')).sum().backward()\n"
        "print(model[0].weight.grad.shape, any('triton' in name for name in memx.sim.calls()))\n"
    )
    script = f"""
import subprocess, sys
command = [sys.executable, "-m", "memx", "sim", "run", "--quiet", "--", sys.executable, {str(program)!r}]
sys.exit(subprocess.call(command))
"""
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = run(script, **caches)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([64, 64]) True\n"
