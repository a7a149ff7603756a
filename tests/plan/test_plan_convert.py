"""``memx convert``: a layout of what comes out is one of what went in."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_problems import buffers as problems
from plan_problems import lowest_height, overlaps

from memx.cli import cli
from memx.demo import DEMO_TRACE
from memx.errors import PlanError
from memx.plan import Buffer, Buffers, layout, read_buffers, write_csv
from memx.plan.convert import convert
from memx.plan.tables import unique_names
from memx.trace import Trace
from memx.trace import events as ev

RMM = """\
Thread,Time,Action,Pointer,Size,Stream
1,10:00:00.000001,allocate,0x10,1000,0x0
2,10:00:00.000002,allocate,0x20,300,0x0
2,10:00:00.000003,allocate failure,(nil),99999,0x0
2,10:00:00.000004,free,0x10,1000,0x0
1,10:00:00.000005,allocate,0x10,700,0x0
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)])


def meetings(buffers: Buffers) -> set[frozenset[str]]:
    """Which buffers are alive together: all that matters of lifetimes."""
    at_one_place = [0] * len(buffers)
    names = unique_names(buffers.ids)
    return {frozenset((names[i], names[j])) for i, j in overlaps(list(buffers), at_one_place)}


@given(rows=problems(max_count=10))
@settings(max_examples=60, deadline=None)
def test_a_table_and_the_trace_of_it_have_the_same_layouts(
    rows: list[Buffer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("convert")
    table, trace, again = (folder / name for name in ("a.csv", "a.jsonl", "b.csv"))
    with open(table, "w") as file:
        write_csv(file, Buffers.of(rows))
    there = convert(table, trace)
    convert(trace, again, alignment=1)
    before, after = read_buffers(table)[0], read_buffers(again)[0]
    assert meetings(before) == meetings(after)
    alive = {b.id: (b.size, b.alignment) for b in before if b.lower < b.upper}
    assert {b.id: (b.size, b.alignment) for b in after} == alive
    assert there.left_out.get("never alive", 0) == len(before) - len(alive)
    if len(rows) <= 6:
        assert lowest_height(list(after)) == lowest_height(list(before))


def test_a_real_trace_as_a_table(tmp_path: Path) -> None:
    target = tmp_path / "step.csv.gz"
    done = convert(DEMO_TRACE, target)
    trace, table = read_buffers(DEMO_TRACE)[0], read_buffers(target)[0]
    assert done.buffers == len(trace) == len(table) == 1039
    assert done.peak_live_bytes == Trace(DEMO_TRACE).peak_live_bytes()
    assert (trace.lower == table.lower).all()
    assert (trace.upper == table.upper).all()
    assert (trace.alignment == table.alignment).all()
    assert layout(trace, method="greedy").height == layout(table, method="greedy").height


def test_ids_used_again_get_a_number_in_tables(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "a.csv"
    events = [{"memx_trace": 1}]
    for name in (1, 1, "1#2", "x", 1):
        events += [{"op": "alloc", "id": name, "size": 8}, {"op": "free", "id": name}]
    source.write_text("".join(json.dumps(event) + "\n" for event in events))
    convert(source, target)
    assert read_buffers(target)[0].ids == ["1", "1#3", "1#2", "x", "1#4"]
    # A plan as a table is a problem again too.
    plan = tmp_path / "plan.csv"
    assert CliRunner().invoke(cli, ["plan", str(source), "-o", str(plan)]).exit_code == 0
    assert read_buffers(plan)[0].ids == ["1", "1#3", "1#2", "x", "1#4"]


def test_an_rmm_log(tmp_path: Path) -> None:
    source, target = tmp_path / "rmm.csv", tmp_path / "rmm.jsonl"
    source.write_text(RMM)
    result = run(source, target, "--json")
    assert result.exit_code == 0
    done = json.loads(result.stdout)
    assert (done["input_kind"], done["output_kind"]) == ("rmm", "trace")
    assert (done["buffers"], done["peak_live_bytes"]) == (3, 1300)
    assert list(Trace(target)) == [
        ev.Alloc("0x10", 1000),
        ev.Thread(1),
        ev.Alloc("0x20", 300),
        ev.Alloc("failed-4", 99999, expect="oom"),
        ev.Free("failed-4", 0),
        ev.Free("0x10", 0),
        ev.Thread(0),
        ev.Alloc("0x10", 700),
    ]
    direct, through = (json.loads(plan(path)) for path in (source, target))
    assert direct["height"] == through["height"] == 1324  # 300 on 1024, above 1000 and later 700
    assert direct["lower_bound"] == 1300


def plan(path: Path) -> str:
    result = CliRunner().invoke(cli, ["plan", str(path), "--json"])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def entry(action: str, addr: int, size: int = 512, stream: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": stream}


def test_a_snapshot(tmp_path: Path) -> None:
    history = [
        entry("free_requested", 0x10, 64, 1 << 63),
        entry("free_completed", 0x10, 64, 1 << 63),
        entry("alloc", 0x20, 100),
        entry("free_completed", 0x20, 100),
        entry("free_completed", 0x20, 100),
        entry("alloc", 0x10, 7, 1 << 63),
    ]
    source = tmp_path / "snapshot.pickle"
    source.write_bytes(pickle.dumps({"segments": [], "device_traces": [history]}))
    done = convert(source, tmp_path / "a.jsonl.zst")
    assert (done.input_kind, done.events, done.buffers) == ("snapshot", 5, 3)
    events = list(Trace(tmp_path / "a.jsonl.zst"))
    assert events == [
        ev.Alloc("0x10", 64, 1),
        ev.Free("0x10"),
        ev.Alloc("0x20", 100),
        ev.Free("0x20"),
        ev.Alloc("0x10", 7, 1),
    ]
    assert meetings(read_buffers(source)[0]) == meetings(read_buffers(tmp_path / "a.jsonl.zst")[0])


def test_a_trace_compressed_is_the_same_trace(tmp_path: Path) -> None:
    with gzip.open(DEMO_TRACE) as file:
        (tmp_path / "plain.jsonl").write_bytes(file.read())
    convert(tmp_path / "plain.jsonl", tmp_path / "packed.jsonl.gz")
    convert(tmp_path / "packed.jsonl.gz", tmp_path / "again.jsonl")
    assert list(Trace(tmp_path / "again.jsonl")) == list(Trace(DEMO_TRACE))
    assert Trace(tmp_path / "again.jsonl").header == Trace(DEMO_TRACE).header


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id,lower,upper,size,offset\na,0,2,8,0\nb,1,1,8,\n")
    result = run(source, tmp_path / "a.jsonl")
    assert result.exit_code == 0
    assert "left out: offsets, 1\nleft out: never alive, 1" in result.stdout


@pytest.mark.parametrize(
    ("name", "text", "target", "message"),
    [
        ("a.csv", "id,lower,upper,size\na,5,2,8\n", "b.jsonl", "a.csv:2: buffer 'a'"),
        ("a.csv", RMM + "1,x,free,0x10,700,0\n", "b.jsonl", "a.csv:7: pointer '0x10': time 'x'"),
        ("a.csv", "id,lower,upper,size\n", "b.txt", "b.txt: written are tables"),
        ("a.csv", "id,lower,upper,size\n", "a.csv", "into itself"),
        ("a.csv", "id,lower,upper,size\n", "none/b.csv", "none/b.csv"),
        ("none.csv", None, "b.jsonl", "none.csv"),
        ("a.jsonl", '{"memx_trace": 1}\n{"op": "free", "id": 1}\n', "b.jsonl", "a.jsonl:2: id 1"),
        ("a.pickle", "cos\nsystem\n(S'true'\ntR.", "b.jsonl", "refused: the pickle wants to load os.system"),
    ],
)
def test_bad_input_is_status_2_one_line_and_no_file(
    tmp_path: Path, name: str, text: str | None, target: str, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = run(tmp_path / name, tmp_path / target)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b", "b#2"]), max_size=9))
def test_names_are_made_unique_and_the_first_keeps_its_own(ids: list[str]) -> None:
    names = unique_names(ids)
    assert len(set(names)) == len(names)
    for i, (name, one) in enumerate(zip(names, ids, strict=True)):
        assert name == one if one not in ids[:i] else name.startswith(one)


def test_a_snapshot_that_cannot_be_converted_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "s.pickle"
    history = [entry("alloc", 0x10), entry("alloc", 0x10)]
    source.write_bytes(pickle.dumps({"segments": [], "device_traces": [history]}))
    with pytest.raises(PlanError, match="entry 1 allocates 0x10, allocated by entry 0 already"):
        convert(source, tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == [source]
