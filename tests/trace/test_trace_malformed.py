"""Every kind of broken trace is refused with its line, in one line."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from memx import TraceError
from memx.trace import read

HEADER = b'{"memx_trace": 1, "page": "64KiB"}\n'
ALLOC = b'{"op": "alloc", "id": "a", "size": "1p"}\n'


def lines(*events: bytes) -> bytes:
    return HEADER + ALLOC + b"".join(event + b"\n" for event in events)


MALFORMED = {
    "empty": (b"", 1, "empty"),
    "no header": (ALLOC, 1, "memx_trace"),
    "a list for a header": (b"[1]\n", 1, "memx_trace"),
    "newer": (b'{"memx_trace": 2}\n', 1, "version 2"),
    "true for a version": (b'{"memx_trace": true}\n', 1, "version True"),
    "page of nothing": (b'{"memx_trace": 1, "page": 0}\n', 1, "page"),
    "page no power of two": (b'{"memx_trace": 1, "page": 3000}\n', 1, "power of two"),
    "limit in words": (b'{"memx_trace": 1, "device_limit": "lots"}\n', 1, "lots"),
    "negative limit": (b'{"memx_trace": 1, "host_limit": -1}\n', 1, "host_limit"),
    "reuse mode": (b'{"memx_trace": 1, "reuse": "always"}\n', 1, "always"),
    "lazy as text": (b'{"memx_trace": 1, "lazy": "yes"}\n', 1, "lazy"),
    "header cut short": (b'{"memx_trace": 1', 1, "not JSON"),
    "not JSON": (lines(b"{op: alloc}"), 3, "not JSON"),
    "cut short": (lines(b'{"op": "free", "i'), 3, "not JSON"),
    "two on a line": (lines(b'{"op": "trim"} {"op": "trim"}'), 3, "not JSON"),
    "nested too deep": (lines(b"[" * 200_000), 3, "not JSON"),
    "digits without end": (lines(b'{"op": "alloc", "id": 1, "size": ' + b"9" * 10_000 + b"}"), 3, "not JSON"),
    "not UTF-8": (lines(b'{"op": "step", "name": "\xff"}'), 3, "not UTF-8"),
    "not an object": (lines(b'"alloc"'), 3, "must be an object"),
    "no operation": (lines(b'{"id": 1}'), 3, "'op' is missing"),
    "unknown operation": (lines(b'{"op": "realloc", "id": "a"}'), 3, "unknown operation 'realloc'"),
    "operation no word": (lines(b'{"op": ["alloc"]}'), 3, "unknown operation"),
    "no id": (lines(b'{"op": "free"}'), 3, "'id' is missing"),
    "id of null": (lines(b'{"op": "free", "id": null}'), 3, "'id'"),
    "id of true": (lines(b'{"op": "free", "id": true}'), 3, "'id'"),
    "id as a fraction": (lines(b'{"op": "free", "id": 1.0}'), 3, "'id'"),
    "no size": (lines(b'{"op": "alloc", "id": "b"}'), 3, "'size' is missing"),
    "size as a fraction": (lines(b'{"op": "alloc", "id": "b", "size": 1.5}'), 3, "1.5"),
    "size in other units": (lines(b'{"op": "alloc", "id": "b", "size": "1GB"}'), 3, "1GB"),
    "still allocated": (lines(ALLOC.strip()), 3, "still allocated, on line 2"),
    "never allocated": (lines(b'{"op": "free", "id": "b"}'), 3, "'b' is not allocated"),
    "freed before": (lines(b'{"op": "free", "id": "a"}', b'{"op": "free", "id": "a"}'), 4, "not allocated"),
    "read after free": (
        lines(b'{"op": "free", "id": "a"}', b'{"op": "kernel", "reads": ["a"]}'),
        4,
        "not allocated",
    ),
    "text is not a number": (lines(b'{"op": "free", "id": 1}'), 3, "1 is not allocated"),
    "stream as text": (lines(b'{"op": "sync", "stream": "1"}'), 3, "'stream'"),
    "negative stream": (lines(b'{"op": "sync", "stream": -1}'), 3, "'stream'"),
    "expectation": (lines(b'{"op": "free", "id": "a", "expect": "fine"}'), 3, "'expect'"),
    "reads as a word": (lines(b'{"op": "kernel", "reads": "a"}'), 3, "'reads' must be a list"),
    "part without id": (lines(b'{"op": "kernel", "reads": [{"offset": 0}]}'), 3, "'id' is missing"),
    "part before the start": (
        lines(b'{"op": "kernel", "writes": [{"id": "a", "offset": -4}]}'),
        3,
        "writes offset",
    ),
    "host_ok as a number": (lines(b'{"op": "alloc", "id": "b", "size": 1, "host_ok": 1}'), 3, "'host_ok'"),
    "stream kind": (lines(b'{"op": "stream", "stream": 1, "kind": "fast"}'), 3, "'kind'"),
    "stream 0 declared": (lines(b'{"op": "stream", "stream": 0}'), 3, "legacy default"),
    "stream declared twice": (
        lines(b'{"op": "stream", "stream": 1}', b'{"op": "stream", "stream": 1}'),
        4,
        "already, on line 3",
    ),
    "wait on nothing": (lines(b'{"op": "wait", "stream": 1}'), 3, "'on' is missing"),
    "check of nothing": (lines(b'{"op": "check"}'), 3, "either"),
    "check of both": (lines(b'{"op": "check", "id": "a", "stat": "frees", "equals": 1}'), 3, "either"),
    "check without a bound": (lines(b'{"op": "check", "stat": "frees"}'), 3, "'equals'"),
    "fail without when": (lines(b'{"op": "fail", "call": "cuMemMap"}'), 3, "'at'"),
    "fail more than always": (lines(b'{"op": "fail", "call": "cuMemMap", "probability": 2}'), 3, "between"),
    "pause without tag": (lines(b'{"op": "pause"}'), 3, "'tag' is missing"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_refused_with_line_and_reason(tmp_path: Path, name: str) -> None:
    contents, line, reason = MALFORMED[name]
    path = tmp_path / "trace.jsonl"
    path.write_bytes(contents)
    with pytest.raises(TraceError) as caught:
        list(read(path))
    message = str(caught.value)
    assert caught.value.line == line
    assert message.startswith(f"{path}:{line}: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "scrambled"])
def test_damaged_compression_is_refused(tmp_path: Path, suffix: str, damage: str) -> None:
    from memx.trace import Header, write
    from memx.trace.events import Alloc

    path = tmp_path / f"trace.jsonl{suffix}"
    write(path, Header("damaged"), [Alloc(i, i * 7919 % 10_007) for i in range(5000)])
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] if damage == "cut" else whole[:middle] + b"\0" * 64 + whole[middle + 64 :])
    with pytest.raises(TraceError) as caught:
        list(read(path))
    assert caught.value.line >= 1
    assert str(caught.value).startswith(f"{path}:{caught.value.line}: ")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.jsonl: No such file"):
        read(tmp_path / "absent.jsonl")


def test_a_plain_file_called_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(HEADER)
    with pytest.raises(TraceError, match="damaged"):
        read(path)


def test_zst_without_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "trace.jsonl.zst"
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="zstandard"):
        read(path)


def test_a_line_without_end_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(HEADER)
        for _ in range(40):
            file.write(b" " * (1 << 20))
    with pytest.raises(TraceError, match="longer than"):
        list(read(path))
