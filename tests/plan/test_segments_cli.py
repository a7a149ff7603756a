"""``memx segments``, the schedules and the pictures that it writes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import migration_problems as small
import pytest
from click.testing import CliRunner, Result

from memx.cli import cli
from memx.errors import PlanError
from memx.plan.migration.files import read_schedule

TWO = small.DATA / "t07_two_iterations.jsonl"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["segments", *map(str, arguments)])


def test_json_has_the_promised_keys_and_nothing_else_is_printed() -> None:
    result = run(TWO, "--capacity", 17, "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert (answer["objects"], answer["mode"], answer["feasible"], answer["optimal"]) == (7, "exclusive", True, True)
    assert (answer["migrated_bytes"], answer["lower_bound"], answer["accesses"], answer["steps"]) == (93, 48, 34, 14)
    assert [segment["bytes"] for segment in answer["segments"]] == [5, 5, 4]
    assert sorted(o for segment in answer["segments"] for o in segment["objects"]) == list(range(7))
    assert answer["seconds"] >= 0
    assert result.stderr == ""


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_no_time_and_any_seed(mode: str) -> None:
    answer = json.loads(
        run(TWO, "--capacity", 17, "--time-limit", 0, "--seed", 1 << 70, "--mode", mode, "--json").stdout
    )
    assert answer["feasible"]
    assert answer["migrated_bytes"] >= answer["lower_bound"] == 48


@pytest.mark.parametrize(("mode", "moved", "segments"), [("packed", 77, 3), ("unsegmented", 51, 0)])
def test_modes(mode: str, moved: int, segments: int) -> None:
    answer = json.loads(run(TWO, "--capacity", "17", "--mode", mode, "--json").stdout)
    assert (answer["migrated_bytes"], len(answer["segments"])) == (moved, segments)


def test_a_number_of_segments() -> None:
    answer = json.loads(run(TWO, "--capacity", 17, "--segments", 3, "--json").stdout)
    assert (len(answer["segments"]), answer["migrated_bytes"]) == (3, 93)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("t04_infeasible_segmented", ("--capacity", 8), "step 5 (line 11)"),
        ("t04_infeasible_segmented", ("--capacity", 6, "--mode", "unsegmented"), "step 1 (line 7) needs 8 bytes"),
        ("t07_two_iterations", ("--capacity", 17, "--segments", 4), "4 segments"),
    ],
)
def test_what_cannot_be_served_is_status_1_and_named(
    name: str, arguments: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    target = tmp_path / "plan.json"
    result = run(small.DATA / f"{name}.jsonl", *arguments, "--json", "-o", target)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["feasible"], answer["migrated_bytes"]) == (False, None)
    assert message in answer["reason"]
    assert message in result.stderr
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--capacity"),
        (("--capacity", "1GB"), "1GB"),
        (("--capacity", "-5"), "-5"),
        (("--capacity", 17, "--mode", "magic"), "magic"),
        (("--capacity", 17, "--segments", 0), "0"),
        (("--capacity", 17, "--segments", 8), "8 segments"),
        (("--capacity", 17, "--segments", 2, "--mode", "unsegmented"), "--segments"),
        (("--capacity", 17, "--round-to", 0), "--round-to"),
        (("--capacity", 17, "-o", "plan.csv"), "plan.csv"),
        (("--capacity", 17, "--plot", "plan.txt"), "plan.txt"),
        (("--capacity", 17, "--plot", "none/plan.png"), "none"),
        (("--capacity", 17, "-o", "none/plan.json"), "none"),
    ],
)
def test_bad_arguments_are_status_2_and_one_line(arguments: tuple[object, ...], message: str) -> None:
    result = run(TWO, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.jsonl:1"),
        ("id,lower,upper,size\n", "t.jsonl:1"),
        ('{"memx_trace": 1}\n{"op": "kernel", "reads": [1]}\n', "t.jsonl:2"),
        ('{"memx_trace": 1}\n{"op": "alloc", "id": 1, "size": -5}\n', "t.jsonl:2"),
    ],
)
def test_bad_files_are_status_2_and_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    result = run(path, "--capacity", "1KiB")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def schedule(tmp_path: Path, *arguments: object) -> Path:
    target = tmp_path / "plan.json"
    assert run(TWO, "--capacity", 17, "-o", target, *arguments).exit_code == 0
    return target


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_a_schedule_names_what_it_came_from_and_holds(tmp_path: Path, mode: str) -> None:
    target = schedule(tmp_path, "--mode", mode, "--seed", 3)
    document = json.loads(target.read_text())
    assert document["source"]["sha256"] == hashlib.sha256(TWO.read_bytes()).hexdigest()
    assert document["memx"]
    assert (document["capacity"], document["lower_bound"], document["seed"]) == (17, 48, 3)
    assert document["method"]
    saved = read_schedule(target)
    assert saved.moved.bytes == document["migrated_bytes"]
    bytes_in = sum(saved.problem.size[o] for _, objects in document["prefetch"] for o in objects)
    assert bytes_in == saved.moved.in_bytes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefetch": []}, "does not hold"),
        ({"write_back": []}, "does not hold"),
        ({"capacity": 9}, "does not hold"),
        ({"migrated_bytes": 92}, "moves 93 bytes, not the 92"),
        ({"segments": [5, 5]}, "damaged"),
        ({"operations": 3}, "damaged"),
        ({"drop": [[0, [99]]]}, "damaged"),
        ({"kind": "layout"}, "not a schedule"),
        ({"accesses": {}}, "damaged"),
    ],
)
def test_a_schedule_that_was_tampered_with_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    target = schedule(tmp_path)
    document = json.loads(target.read_text())
    target.write_text(json.dumps({**document, **change}))
    with pytest.raises(PlanError, match=message):
        read_schedule(target)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"memx_plan": 1, "kind": "schedule"}'])
def test_what_is_no_schedule_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"plan\.json"):
        read_schedule(path)


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_pictures(tmp_path: Path, suffix: str, mode: str) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / f"picture.{suffix}"
    assert run(TWO, "--capacity", 17, "--mode", mode, "--plot", target).exit_code == 0
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!doctype html>"}[suffix]
    assert target.read_bytes().startswith(magic)
    assert target.stat().st_size > 5000


@pytest.mark.parametrize("mode", ["exclusive", "packed", "unsegmented"])
def test_a_timeline_has_every_operation_and_copy(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "timeline.json"
    answer = json.loads(run(TWO, "--capacity", 17, "--mode", mode, "--plot", target, "--json").stdout)
    events = json.loads(target.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len([event for event in slices if event["pid"] == 1]) == 14
    assert sum(event["args"]["bytes"] for event in slices if event["pid"] == 2) == answer["migrated_bytes"]
    device = [event["args"]["bytes"] for event in events if event["ph"] == "C" and event["name"] == "device"]
    assert max(device) <= 17
    assert device[-1] == 0
