"""CSV problems: what is read, what is refused and where, and the way there and back."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from plan_problems import buffers

from memx.errors import PlanError
from memx.plan import Buffer, Buffers, layout, read_csv, write_csv


def read(tmp_path: Path, text: str) -> list[Buffer]:
    path = tmp_path / "problem.csv"
    path.write_text(text)
    return list(read_csv(path))


def test_columns_in_any_order(tmp_path: Path) -> None:
    rows = read(tmp_path, "size,id,upper,lower\n512,a,3,0\n")
    assert rows == [Buffer("a", 0, 3, 512)]


def test_aliases_and_the_inclusive_end(tmp_path: Path) -> None:
    assert read(tmp_path, "buffer,start,end,size\nx,2,2,8\n") == [Buffer("x", 2, 3, 8)]
    assert read(tmp_path, "buffer,begin,upper,size\nx,2,4,8\n") == [Buffer("x", 2, 4, 8)]


def test_alignment_and_offset_may_be_blank(tmp_path: Path) -> None:
    rows = read(tmp_path, "id,lower,upper,size,alignment,offset\na,0,3,8,,\nb,0,3,8,4,16\n\n")
    assert rows == [Buffer("a", 0, 3, 8), Buffer("b", 0, 3, 8, 4, 16)]


def test_byte_order_mark_spaces_and_windows_lines(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeffid, lower,upper ,size\r\na, 0,3 ,8\r\n") == [Buffer("a", 0, 3, 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"problem\.csv:1: the file is empty"),
        ("id,lower,upper\na,0,1\n", r":1: there is no column 'size'"),
        ("id,lower,upper,size,gaps\na,0,1,1,\n", r":1: column 'gaps': gaps in lifetimes are not supported"),
        ("id,lower,upper,size,colour\na,0,1,1,red\n", r":1: column 'colour': it is not understood"),
        ("id,lower,start,upper,size\n", r":1: columns 'lower' and 'start' both give lower"),
        ("id,lower,upper,size\na,0,1,8\nb,0,x,8\n", r":3: buffer 'b': upper 'x' is not a whole number"),
        ("id,lower,upper,size\na,0,1,8\nb,0,,8\n", r":3: buffer 'b': upper '' is not a whole number"),
        ("id,lower,upper,size\na,0,1,8\na,0,1,8\n", r":3: buffer 'a' is on line 2 already"),
        ("id,lower,upper,size\na,0,1\n", r":2: 3 cells under 4 columns"),
        ("id,lower,upper,size\na,0,1,-1\n", r":2: buffer 'a': size -1 is negative"),
        ("id,lower,upper,size,offset\na,0,1,1,-3\n", r":2: buffer 'a': offset -3 is negative"),
        ("id,start,end,size\na,5,4,1\n", r":2: buffer 'a': it ends at 4, before it begins at 5"),
        (
            "id,lower,upper,size\na,0,2,9223372036854775808\nb,1,3,9223372036854775808\n",
            r":2: buffer 'a': size 92",
        ),
        ("id,lower,upper,size\na,0,2,1\nb,1,3,4611686018427387903\n", r":3: buffer 'b': with its size"),
    ],
)
def test_refusals_name_the_file_the_line_and_the_buffer(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(tmp_path, text)


def test_the_lifetimes_case(tmp_path: Path) -> None:
    head = "id,lower,upper,size\na,0,3,512\nb,3,6,512\nc,4,4,512\nd,6,9,1024\n"
    with pytest.raises(PlanError, match=r":6: buffer 'e': it ends at 2, before it begins at 5"):
        read(tmp_path, head + "e,5,2,512\n")
    result = layout(read(tmp_path, head))
    assert result.height == result.lower_bound == 1024
    assert result.offsets[0] == result.offsets[1]


def test_not_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"id,\xff\xfe\x00")
    with pytest.raises(PlanError, match=r"x\.csv: not a text file"):
        read_csv(tmp_path / "x.csv")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="nowhere"):
        read_csv(tmp_path / "nowhere.csv")


@given(rows=buffers())
@settings(max_examples=60, deadline=None)
def test_there_and_back_fixes_the_layout(rows: list[Buffer], tmp_path_factory: pytest.TempPathFactory) -> None:
    problem = Buffers.of([Buffer(f"b{b.id}", b.lower, b.upper, b.size, b.alignment) for b in rows])
    result = layout(problem)
    text = io.StringIO()
    write_csv(text, problem, result.offsets)
    path = tmp_path_factory.mktemp("csv") / "plan.csv"
    path.write_text(text.getvalue())
    again = read_csv(path)
    assert [b.offset for b in again] == result.offsets.tolist()
    assert [(b.id, b.lower, b.upper, b.size) for b in again] == [(b.id, b.lower, b.upper, b.size) for b in problem]
    assert layout(again).height == result.height
