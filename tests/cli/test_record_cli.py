"""``memx record`` where no PyTorch is needed: the command line, the files, and what is made of events."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import memx
from memx.cli import cli
from memx.record.output import TraceFile, numbered
from memx.record.snapshot import Snapshot
from memx.record.translate import Translator
from memx.trace import Header, Trace
from memx.trace import events as ev

PACKAGE = Path(memx.__file__).parent
ALLOC, FREE, RECORD_STREAM, WAIT, OOM, MARK = range(6)


def memx_record(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from memx.cli import main; main()", "record", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=PACKAGE / "data",
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "true"], "Missing option"),
        (["-o", "/no/such/folder/t.jsonl", "--", "true"], "there is no such folder"),
        (["-o", "t.jsonl", "--", "no-such-program-anywhere"], "no program"),
        (["-o", "t.jsonl", "--memory", "many", "--", "true"], "many"),
        (["-o", "t.jsonl"], "Missing argument"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["record", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_a_program_without_pytorch_is_told_so(tmp_path: Path) -> None:
    done = memx_record("-o", str(tmp_path / "t.jsonl"), "--", sys.executable, "-c", "print('hello')")
    assert done.returncode == 2
    assert done.stdout == "hello\n"
    assert "nothing was recorded" in done.stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_the_programs_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.mine = 'theirs'")
    root = f"{tmp_path}{os.pathsep}{PACKAGE.parent}"
    code = "import sys; print(sys.mine, any('record' in p and p.endswith('site') for p in sys.path))"
    done = memx_record("-o", str(tmp_path / "t.jsonl"), "--", sys.executable, "-c", code, PYTHONPATH=root)
    assert done.stdout == "theirs False\n"


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_what_was_flushed_can_be_read_without_the_rest(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    file = TraceFile(path, Header("t"))
    for number in range(5):
        file.write(ev.Alloc(number, 1000 + number))
        file.flush()
        assert [event.size for event in Trace(path)] == [1000 + n for n in range(number + 1)]  # type: ignore[union-attr]
    file.write(ev.Free(0))
    assert len(list(Trace(path))) == 5
    file.close()
    assert len(list(Trace(path))) == 6


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.jsonl{suffix}"
    program = f"""
import random, resource, signal
from memx.record.output import TraceFile
from memx.trace import Header, events as ev
file = TraceFile(__import__("pathlib").Path({str(path)!r}), Header("t"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
numbers = random.Random(0)
for n in range(20000):
    file.write(ev.Alloc(n, numbers.randrange(1 << 30)))
    if n % 100 == 0:
        file.flush()
file.close()
print(file.error)
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert "File too large" in done.stdout
    assert path.stat().st_size <= 20000
    events = list(Trace(path))
    assert 100 < len(events) < 20000
    assert [event.id for event in events] == list(range(len(events)))  # type: ignore[union-attr]


def test_numbered() -> None:
    assert numbered(Path("a/t.jsonl.gz"), 1) == Path("a/t.jsonl.gz")
    assert numbered(Path("a/t.jsonl.gz"), 3) == Path("a/t.3.jsonl.gz")


def test_events_of_rows() -> None:
    side = 0x1000
    rows = [
        (ALLOC, 0xA, 100, 0, 0, 1),
        (ALLOC, 0xB, 50, side, 0, 2),
        (MARK, 0, 0, 0, 1, 3),
        (RECORD_STREAM, 0xA, 100, side, 0, 4),
        (FREE, 0xA, 100, 0, 0, 5),
        (FREE, 0xF, 1, 0, 0, 6),  # from before
        (ALLOC, 0xA, 70, 0, 0, 7),
        (OOM, 0, 1 << 40, 0, 0, 8),
        (WAIT, 0, 0, 0, side, 9),
        (MARK, 0, 0, 0, 2, 10),
        (MARK, 0, 0, 0, 3, 11),
    ]
    details = {1: ["kernel", "add", [0xA, 0x99], [0xB], side], 2: ["step", "step 1"], 3: ["wait", 0, 1]}
    translator = Translator()
    events = [event for row in rows for event in translator.take(row, details)]
    assert events == [
        ev.Alloc(0, 100),
        ev.Stream(1, "nonblocking"),
        ev.Alloc(1, 50, 1),
        ev.Kernel((ev.Operand(0),), (ev.Operand(1),), 1, "add"),
        ev.RecordStream(0, 1),
        ev.Free(0, 0),
        ev.Alloc(2, 70),
        ev.Alloc(3, 1 << 40, expect="any"),
        ev.Free(3),
        ev.Wait(0, 1),
        ev.Step("step 1"),
    ]
    assert (translator.live, translator.peak_live, translator.buffers, translator.steps) == (120, 150, 3, 1)


def test_a_snapshot_of_a_killed_process_has_its_live_blocks(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    snapshot = Snapshot(path)
    for row in ((ALLOC, 0xA00, 100, 0, 0, 1), (ALLOC, 0xB00, 50, 7, 0, 2), (FREE, 0xA00, 100, 0, 0, 3)):
        snapshot.take(row, 0, {})
    snapshot.write()
    loaded = pickle.loads(path.read_bytes())
    assert [(s["address"], s["total_size"], s["stream"]) for s in loaded["segments"]] == [(0xB00, 50, 7)]
    actions = [entry["action"] for entry in loaded["device_traces"][0]]
    assert actions == ["alloc", "alloc", "free_requested", "free_completed"]


def test_a_snapshot_has_the_stacks_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    snapshot = Snapshot(path)
    first, second = ["a.py", 3, "f"], ["b.py", 5, "<module>"]
    details = {
        1: ["stack", 1, [first, second]],
        2: ["stack", 2, [second]],
        3: ["stack", 1],
        4: ["stack", 0, []],
        5: ["step", "1"],
    }
    rows = [(ALLOC, 0xA00, 10, 0, 0, 1)]  # on the device's first use, told right after it
    rows += [(MARK, 0, 0, 0, 1, 2), (ALLOC, 0xB00, 20, 0, 0, 3), (MARK, 0, 0, 0, 5, 3)]
    rows += [(MARK, 0, 0, 0, 2, 4), (ALLOC, 0xC00, 30, 0, 0, 5), (FREE, 0xB00, 20, 0, 0, 6)]
    rows += [(MARK, 0, 0, 0, 3, 7), (ALLOC, 0xD00, 40, 0, 0, 8), (MARK, 0, 0, 0, 4, 9), (ALLOC, 0xE00, 50, 0, 0, 10)]
    for row in rows:
        snapshot.take(row, 0, details)
    snapshot.write()
    loaded = pickle.loads(path.read_bytes())
    told = [(e["action"], e["size"], [f["line"] for f in e["frames"]]) for e in loaded["device_traces"][0]]
    assert told == [
        ("alloc", 10, [3, 5]),
        ("alloc", 20, [3, 5]),
        ("alloc", 30, [5]),
        ("free_requested", 20, [3, 5]),  # of its allocation
        ("free_completed", 20, [3, 5]),
        ("alloc", 40, [3, 5]),
        ("alloc", 50, []),
    ]
    blocks = [block for segment in loaded["segments"] for block in segment["blocks"]]
    assert [(block["size"], [frame["name"] for frame in block["frames"]]) for block in blocks] == [
        (10, ["f", "<module>"]),
        (30, ["<module>"]),
        (40, ["f", "<module>"]),
        (50, []),
    ]
    assert loaded["device_traces"][0][0]["frames"][0] == {"filename": "a.py", "line": 3, "name": "f"}
