"""The command line as a program: status, standard output, standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import memx as package

CASES = Path(__file__).parent.parent / "cases" / "data"
PACKAGE = Path(package.__file__).parent

RESULT_KEYS = {
    "allocator": str,
    "ok": bool,
    "failed_event": (int, type(None)),
    "error": (str, type(None)),
    "peak_reserved_bytes": int,
    "peak_allocated_bytes": int,
    "peak_host_bytes": int,
    "migrated_in_bytes": int,
    "migrated_out_bytes": int,
    "driver_calls": dict,
    "modelled_driver_us": float,
    "races": int,
    "mismatches": int,
    "failed_expectations": int,
    "wall_s": float,
}


def memx(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "COLUMNS": "100", **extra}
    return subprocess.run(
        [sys.executable, "-m", "memx", *map(str, arguments)],
        capture_output=True, text=True, env=environment, cwd=cwd or PACKAGE / "data", check=False, timeout=110,
    )  # fmt: skip


def save(path: Path, *events: dict[str, Any], **header: Any) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in [{"memx_trace": 1, **header}, *events]) + "\n")
    return path


def test_help_is_quick_and_names_the_commands() -> None:
    code = "import sys\nfrom memx.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        cwd=PACKAGE / "data", check=True,
    )  # fmt: skip
    assert "replay" in run.stdout
    assert "demo" in run.stdout
    loaded = set(run.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "cuda.core", "rich", "matplotlib", "memx._native"}


@pytest.mark.parametrize("command", ["demo", "replay", "plan", "doctor"])
def test_each_command_has_help(command: str) -> None:
    run = memx(command, "--help")
    assert run.returncode == 0
    assert "--json" in run.stdout


def test_replay_prints_one_object() -> None:
    run = memx("replay", CASES / "three-times-the-device.jsonl", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert answer["trace"] == "three-times-the-device"
    assert answer["events"] == 74
    assert answer["peak_live_bytes"] == 12 * (2 << 20)
    (result,) = answer["results"]
    for key, kind in RESULT_KEYS.items():
        assert isinstance(result[key], kind), key
    assert result["ok"] is True
    assert result["peak_reserved_bytes"] <= 4 * (2 << 20)
    assert result["mismatches"] == result["races"] == result["failed_expectations"] == 0


def test_replay_speaks_to_people() -> None:
    run = memx("replay", CASES / "double-free.jsonl")
    assert (run.returncode, run.stderr) == (0, "")
    assert "done" in run.stdout
    assert "wrong bytes" in run.stdout


def test_an_unmet_expectation_is_status_1(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": "a", "size": "1p", "expect": "oom"},
        {"op": "check", "stat": "allocated_bytes.current", "equals": "2p"},
        page="64KiB",
    )
    run = memx("replay", path, "--json")
    assert run.returncode == 1
    (result,) = json.loads(run.stdout)["results"]
    assert result["ok"] is False
    assert result["failed_expectations"] == 2
    assert result["failed_event"] == 1
    assert result["error"].startswith("line 2: alloc 'a'")


def test_a_capacity_that_is_too_small_is_status_1(tmp_path: Path) -> None:
    path = save(tmp_path / "t.jsonl", {"op": "alloc", "id": "a", "size": "5p"}, page="64KiB")
    run = memx("replay", path, "--json", "--device-limit", "2p", "--host-limit", "2p")
    assert run.returncode == 1
    assert json.loads(run.stdout)["results"][0]["failed_event"] == 1
    assert memx("replay", path, "--device-limit", "2p", "--host-limit", "5p").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "TRACE"),
        (["absent.jsonl"], "absent.jsonl"),
        (["trace.jsonl", "--device-limit", "12GB"], "12GB"),
        (["trace.jsonl", "--host-limit", "-5"], "-5"),
        (["trace.jsonl", "--page", "2p"], "2p"),
        (["trace.jsonl", "--page", "3000"], "3000"),
        (["trace.jsonl", "--scale", "0"], "'0'"),
        (["trace.jsonl", "--scale", "half"], "half"),
        (["trace.jsonl", "--reuse", "sometimes"], "sometimes"),
        (["trace.jsonl", "--allocator", "torch-native"], "torch-native"),
        (["trace.jsonl", "--colour"], "--colour"),
        (["trace.jsonl", "--plot", "absent/picture.png"], "absent"),
        (["trace.jsonl", "--plot", "picture.doc"], ".png"),
        (["trace.jsonl", "--device-limit", "0"], "device"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    save(tmp_path / "trace.jsonl", {"op": "alloc", "id": "a", "size": 1})
    run = memx("replay", *arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert named in run.stderr


def test_a_broken_trace_is_named_with_its_line(tmp_path: Path) -> None:
    path = save(tmp_path / "t.jsonl", {"op": "alloc", "id": "a", "size": 1}, {"op": "melt"})
    run = memx("replay", path, "--json")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"memx: error: {path}:3: unknown operation 'melt'\n"


def test_command_line_limits_come_before_the_header(tmp_path: Path) -> None:
    path = save(
        tmp_path / "t.jsonl",
        {"op": "alloc", "id": "a", "size": "3p"},
        page="64KiB", device_limit="2p", host_limit=0,
    )  # fmt: skip
    assert memx("replay", path).returncode == 1
    assert memx("replay", path, "--device-limit", "3p").returncode == 0
    assert memx("replay", path, "--host-limit", "3p").returncode == 0
    assert memx("replay", path, "--scale", "1/2", "--page", "4KiB").returncode == 1  # limits shrink too
    assert memx("replay", path, "--scale", "1/4").returncode == 0  # but not below a page


def test_a_plot_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "replay.png"
    run = memx("replay", CASES / "three-times-the-device.jsonl", "--lazy", "--plot", picture)
    assert run.returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_empty_trace_is_done_and_can_be_drawn(tmp_path: Path) -> None:
    path = save(tmp_path / "t.jsonl")
    run = memx("replay", path, "--json", "--plot", tmp_path / "picture.png")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert (answer["events"], answer["peak_live_bytes"]) == (0, 0)
    assert (tmp_path / "picture.png").exists()


def test_doctor_without_a_driver_says_what_to_do() -> None:
    if any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/dxg")):
        pytest.skip("this machine has a driver")
    run = memx("doctor", "--json")
    assert run.returncode == 0
    answer = json.loads(run.stdout)
    assert answer["driver"] is False
    assert "memx.simulate" in answer["advice"]
    assert "memx demo" in answer["advice"]


def test_doctor_looks_at_the_simulated_device() -> None:
    run = memx("doctor", "--json", MEMX_SIMULATE="memory=256MiB,page=64KiB,devices=2")
    assert run.returncode == 0
    answer = json.loads(run.stdout)
    assert answer["simulated"] is True
    assert [device["total_bytes"] for device in answer["devices"]] == [256 << 20] * 2
    assert [device["page_bytes"] for device in answer["devices"]] == [64 << 10] * 2
    assert all(device["usable"] for device in answer["devices"])
