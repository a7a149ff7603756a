"""Replays with PyTorch's own allocator beside memx."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .child import PACKAGE, start

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20
MEMX = ["-c", "import sys; from memx.cli import main; sys.exit(main())"]
ALL = ["--allocator", "memx", "--allocator", "torch-native", "--allocator", "torch-expandable"]


def trace(path: Path, *events: dict[str, object]) -> str:
    lines = [{"memx_trace": 1, "page": "2MiB", "device_limit": "64MiB", "host_limit": 0}, *events]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def replayed(*arguments: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = start([*MEMX, "replay", *arguments, "--json", "--simulate"])
    assert done.stdout, done.stderr
    return done.returncode, {result["allocator"]: result for result in json.loads(done.stdout)["results"]}


def test_a_fragmented_device_is_out_of_memory_for_pytorch_alone(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "fragments.jsonl",
        {"op": "alloc", "id": "a", "size": 24 * MIB},
        {"op": "kernel", "writes": ["a"]},
        {"op": "free", "id": "a"},
        {"op": "alloc", "id": "b", "size": 4 * MIB},
        {"op": "alloc", "id": "c", "size": 4 * MIB, "stream": 1},
        {"op": "kernel", "writes": ["c"], "stream": 1},
        {"op": "alloc", "id": "d", "size": 46 * MIB},
        {"op": "kernel", "writes": ["d"]},
        {"op": "kernel", "reads": ["d", "c"], "stream": 1},
        {"op": "sync"},
    )
    status, results = replayed(path, *ALL)
    assert status == 1
    assert results["memx"]["ok"]
    assert results["memx"]["peak_reserved_bytes"] == 54 * MIB
    assert not results["torch-native"]["ok"]
    assert "out of memory" in str(results["torch-native"]["error"])
    for result in results.values():
        assert (result["races"], result["mismatches"]) == (0, 0)


def test_a_real_step_with_contents() -> None:
    status, results = replayed(str(PACKAGE / "data" / "resnet50_b32_sgd.jsonl.gz"), "--scale", "1/64", *ALL)
    assert status == 0
    live = results["memx"]["peak_allocated_bytes"]
    for name, result in results.items():
        assert (result["races"], result["mismatches"]) == (0, 0), name
        assert result["peak_allocated_bytes"] == live, name  # all three round to 512 bytes
        assert isinstance(live, int)
        assert isinstance(result["peak_reserved_bytes"], int)
        assert result["peak_reserved_bytes"] >= live
        assert isinstance(result["driver_calls"], dict)
    native, ours = results["torch-native"], results["memx"]
    assert ours["peak_reserved_bytes"] <= native["peak_reserved_bytes"]  # type: ignore[operator]
    assert native["driver_calls"]["cuMemAlloc"] > 0  # type: ignore[index]
