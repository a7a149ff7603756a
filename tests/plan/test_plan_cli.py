"""``memx plan`` and the files that it writes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memx.cli import cli
from memx.errors import PlanError
from memx.plan.plans import read_layout

ROWS = "id,lower,upper,size\na,0,3,512\nb,3,6,512\nc,4,4,512\nd,6,9,1024\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.csv"
    path.write_text(ROWS)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)])


def test_json_is_one_object_on_standard_output(problem: Path) -> None:
    result = run(problem, "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["buffers"] == 4
    assert answer["height"] == answer["lower_bound"] == 1024
    assert answer["optimal"] is True
    assert answer["fits"] is None
    assert len(answer["offsets"]) == 4
    assert answer["seconds"] >= 0


@pytest.mark.parametrize(("capacity", "status", "fits"), [("1KiB", 0, True), ("1023", 1, False)])
def test_the_capacity_decides_the_status(problem: Path, capacity: str, status: int, fits: bool) -> None:
    result = run(problem, "--json", "--capacity", capacity)
    assert result.exit_code == status
    assert json.loads(result.stdout)["fits"] is fits


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (ROWS + "e,5,2,512\n", (), "problem.csv:6: buffer 'e'"),
        ("id,lower,upper,size,gaps\n", (), "problem.csv:1: column 'gaps'"),
        (ROWS, ("--capacity", "1GB"), "1GB"),
        (ROWS, ("--capacity", "2p"), "pages"),
        (ROWS, ("--align", "0"), "alignment of 0"),
        (ROWS, ("--method", "magic"), "magic"),
        (ROWS, ("-o", "plan.txt"), "plan.txt"),
        (ROWS, ("--plot", "plan.doc"), "plan.doc"),
        ('{"memx_trace": 1}\n{"op": "alloc", "id": 1, "size": -5}\n', (), "problem.csv:2: id 1"),
    ],
)
def test_bad_input_is_status_2_and_one_line(problem: Path, text: str, arguments: tuple[str, ...], message: str) -> None:
    problem.write_text(text)
    result = run(problem, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_file(tmp_path: Path) -> None:
    result = run(tmp_path / "none.csv")
    assert result.exit_code == 2
    assert "none.csv" in result.stderr


def test_a_json_plan_names_what_it_came_from(problem: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert run(problem, "-o", target, "--capacity", "2KiB", "--seed", 7).exit_code == 0
    document = json.loads(target.read_text())
    assert document["source"]["sha256"] == hashlib.sha256(problem.read_bytes()).hexdigest()
    assert document["memx"]
    assert (document["capacity"], document["lower_bound"], document["seed"]) == (2048, 1024, 7)
    assert document["method"].startswith("greedy")
    saved = read_layout(target)
    assert saved.height == 1024
    assert list(saved.buffers.ids) == ["a", "b", "c", "d"]


def test_the_same_plan_twice_is_the_same_file(problem: Path, tmp_path: Path) -> None:
    targets = [tmp_path / "one.json", tmp_path / "two.json"]
    for target in targets:
        run(problem, "-o", target)
    assert targets[0].read_bytes() == targets[1].read_bytes()


def test_a_csv_plan_has_offsets_and_is_a_problem_again(problem: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    assert run(problem, "-o", target).exit_code == 0
    with open(target, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    again = json.loads(run(target, "--json").stdout)
    assert again["offsets"] == [int(row["offset"]) for row in rows]


def test_no_plan_is_written_that_does_not_fit(problem: Path, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert run(problem, "-o", target, "--capacity", "600").exit_code == 1
    assert list(tmp_path.iterdir()) == [problem]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("offset", [0, 0, 0, 1], "does not hold"), ("size", [512, 512, 512, 4096], "does not hold: buffer 'd'.*capacity")],
)
def test_a_plan_that_was_tampered_with_is_refused(
    problem: Path, tmp_path: Path, key: str, value: list[int], message: str
) -> None:
    target = tmp_path / "plan.json"
    run(problem, "-o", target, "--capacity", "1024")
    document = json.loads(target.read_text())
    document["buffers"][key] = value
    target.write_text(json.dumps(document))
    with pytest.raises(PlanError, match=message):
        read_layout(target)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"memx_plan": 1, "kind": "layout"}', '{"memx_plan": 9}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"plan\.json"):
        read_layout(path)


def test_a_compressed_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    lines = [
        '{"memx_trace": 1, "page": "64KiB"}',
        '{"op": "alloc", "id": 1, "size": "1p"}',
        '{"op": "free", "id": 1}',
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    result = run(path, "--json", "--capacity", "1p")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["height"] == 64 << 10


@pytest.mark.parametrize("colour", ["size", "tag"])
@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_a_picture(problem: Path, tmp_path: Path, suffix: str, colour: str) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / f"picture.{suffix}"
    assert run(problem, "--plot", target, "--capacity", "1KiB", "--colour", colour).exit_code == 0
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!doctype html>"}[suffix]
    assert target.read_bytes().startswith(magic)
    assert target.stat().st_size > 5000


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_a_picture_of_nothing(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "empty.csv"
    path.write_text("id,lower,upper,size\n")
    assert run(path, "--plot", tmp_path / f"empty.{suffix}").exit_code == 0


@pytest.mark.parametrize("name", ["absent/x.html", "absent/x.png"])
def test_a_picture_where_there_is_no_folder(problem: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    result = run(problem, "--plot", tmp_path / name)
    assert result.exit_code == 2
    assert "absent" in result.stderr
    assert result.stderr.count("\n") == 1
