"""The demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import memx

ROOT = Path(memx.__file__).parents[1]
BLOCK_MATPLOTLIB = "import sys; sys.modules['matplotlib'] = None; from memx.cli import main; main(sys.argv[1:])"


def run(code: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False, timeout=110,
    )  # fmt: skip


def test_demo_does_the_main_job_and_draws_it(tmp_path: Path) -> None:
    done = run(["-m", "memx", "demo", "--json"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert {"device", "simulated", "parts", "wall_s"} <= answer.keys()
    assert answer["simulated"] is True
    assert len(answer["parts"]) == 4
    assert all(part["ok"] for part in answer["parts"])
    assert answer["races"] == answer["mismatches"] == 0
    assert answer["peak_reserved_bytes"] <= answer["device_limit_bytes"] < answer["peak_live_bytes"]
    assert answer["migrated_in_bytes"] > 0
    assert answer["migrated_out_bytes"] > 0
    assert (tmp_path / "memx-demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_goes_on_without_matplotlib(tmp_path: Path) -> None:
    done = run(["-c", BLOCK_MATPLOTLIB, "demo"], tmp_path)
    assert done.returncode == 0
    assert "pip install 'memx[plot]'" in done.stderr
    assert "0 wrong bytes, 0 races" in done.stdout
    assert list(tmp_path.iterdir()) == []
