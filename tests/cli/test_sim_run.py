"""``memx sim run``: any program, and what it starts, on the simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memx

PACKAGE = Path(memx.__file__).parent
ASK = """
import ctypes
cuda, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
count, total, free = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
codes = cuda.cuInit(0), runtime.cudaGetDeviceCount(ctypes.byref(count))
codes += (runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)),)
print(*codes, count.value, total.value)
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    without = {key: value for key, value in os.environ.items() if key not in ("MEMX_SIMULATE", "LD_PRELOAD")}
    return subprocess.run(
        [sys.executable, "-m", "memx", "sim", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=PACKAGE / "data",
        env={**without, "PYTHONPATH": str(PACKAGE.parent), **environment},
    )


def test_a_program_finds_the_device_that_was_asked_for() -> None:
    done = run("--memory", "192MiB", "--page=64KiB", "--devices", "3", "--", sys.executable, "-c", ASK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0", "0", "3", str(192 << 20)]
    assert done.stderr.splitlines() == ["memx: simulated device of 192 MiB, 3 of them; kernels compute nothing"]


def test_the_programs_that_it_starts_do_too() -> None:
    done = run(
        "--quiet",
        "--memory",
        "64MiB",
        "sh",
        "-c",
        f'"{sys.executable}" -c "$ASK"; exit 7',
        ASK=ASK,
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.stdout.split() == ["0", "0", "0", "1", str(64 << 20)]
    assert done.stderr == ""
    assert done.returncode == 7


def test_options_after_the_program_are_the_programs() -> None:
    done = run("--quiet", "echo", "--memory", "1", "--help")
    assert done.stdout == "--memory 1 --help\n"


def test_memx_in_the_program_uses_the_same_device() -> None:
    script = "import memx; memx.MemoryResource; from cuda.core import Device; d = Device(0); d.set_current(); d.sync()"
    done = run("--quiet", "--memory=64MiB", sys.executable, "-c", f"{script}; print(memx.sim.usage()['device_bytes'])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0]"


def test_memx_may_come_after_the_first_call() -> None:
    script = f"{ASK}\nimport memx\nprint(memx.sim.active(), memx.sim.calls()['cuInit'])"
    done = run("--quiet", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["True", "2"]


def test_libraries_that_were_preloaded_stay() -> None:
    done = run("--quiet", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libm.so.6")
    paths = done.stdout.strip().split(":")
    assert paths[-1] == "libm.so.6"
    assert Path(paths[0]).name == "libcuda.so.1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-program"],
        ["/"],
        [str(PACKAGE / "cupy.py")],
        ["--memory", "lots", "true"],
        ["--memory", "1KiB", "true"],
        ["--memory", "-1", "true"],
        ["--page", "3000", "true"],
        ["--devices", "0", "true"],
        ["--host-memory", "2000TiB", "true"],
        [],
    ],
)
def test_what_cannot_be_started_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("memx: error: ")
