"""RMM's logs as events, and what is refused of them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from memx.errors import TraceError
from memx.trace import events as ev
from memx.trace.rmm import read_rmm

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rmm.dev0.csv"


def read(log: Path, *rows: str) -> list[ev.Event]:
    log.write_text(HEADER + "".join(row + "\n" for row in rows))
    return read_rmm(log)


def test_allocations_and_frees(log: Path) -> None:
    got = read(
        log,
        "7,10:14:13.000001,allocate,0x7f10,1024,0x0",
        "7,10:14:13.000002,allocate,0x7f20,256,0x55d0",
        "7,10:14:13.000003,free,0x7f10,1024,0x0",
        "7,10:14:13.000004,allocate,0x7f10,8,0x1",
    )
    assert got == [
        ev.Alloc("0x7f10", 1024, 0),
        ev.Alloc("0x7f20", 256, 1),
        ev.Free("0x7f10", 0),
        ev.Alloc("0x7f10", 8, 0),
    ]
    assert [event.line for event in got] == [2, 3, 4, 5]


def test_the_forms_of_other_versions(log: Path) -> None:
    """Addresses without 0x, a colon before the microseconds, seconds since 1970, `deallocate`, spaces."""
    got = read(
        log,
        "7,10:14:13:000001,allocate,7f10,1024,0",
        "7,1634567890.25, deallocate, 7F10, 1024, 0",
    )
    assert got == [ev.Alloc("0x7f10", 1024, 0), ev.Free("0x7f10", 0)]


def test_a_failure_is_an_allocation_expected_to_fail(log: Path) -> None:
    got = read(log, "7,1,allocate failure,(nil),4096,0x0", "7,2,allocate failure,0x0,4096,0x0")
    assert got == [
        ev.Alloc("failed-2", 4096, 0, expect="oom"),
        ev.Free("failed-2", 0),
        ev.Alloc("failed-3", 4096, 0, expect="oom"),
        ev.Free("failed-3", 0),
    ]


def test_no_bytes_at_no_address_are_left_out(log: Path) -> None:
    assert read(log, "7,1,allocate,(nil),0,0x0", "7,1,allocate,(nil),0,0x0", "7,2,free,(nil),0,0x0") == []


def test_threads_and_their_own_streams(log: Path) -> None:
    got = read(
        log,
        "70,1,allocate,0x10,8,0x2",
        "71,2,allocate,0x20,8,0x2",
        "71,3,free,0x10,8,0x2",
        "70,4,free,0x20,8,0xabc",
    )
    assert got == [
        ev.Stream(1, "per_thread"),
        ev.Alloc("0x10", 8, 1),
        ev.Thread(1),
        ev.Alloc("0x20", 8, 1),
        ev.Free("0x10", 1),
        ev.Thread(0),
        ev.Free("0x20", 2),
    ]


def test_the_file_is_in_order_even_where_the_times_are_not(log: Path) -> None:
    """A row's time is taken before it waits to be written, and the clock begins anew at midnight."""
    rows = ["1,23:59:59.9,allocate,0x10,8,0", "2,00:00:00.3,free,0x10,8,0", "1,00:00:00.2,allocate,0x10,16,0"]
    assert [type(event).op for event in read(log, *rows) if not isinstance(event, ev.Thread)] == [
        "alloc",
        "free",
        "alloc",
    ]


@pytest.mark.parametrize("seed", range(10))
def test_joined_logs_of_threads_are_put_in_order_by_time(log: Path, seed: int) -> None:
    """Threads pass buffers on: what one allocates another frees. First all rows of one thread, then of the next."""
    rng = random.Random(seed)
    rows: list[tuple[int, str]] = []
    held: dict[int, int] = {}
    for moment in range(200):
        thread = rng.randrange(3)
        if held and rng.random() < 0.5:
            pointer = rng.choice(list(held))
            rows.append((thread, f"{thread},00:00:{moment / 10:06.3f},free,{pointer:#x},{held.pop(pointer)},0"))
        else:
            pointer = rng.choice([p for p in range(1, 9) if p not in held] or [moment + 100])
            held[pointer] = rng.randrange(1, 1000)
            rows.append((thread, f"{thread},00:00:{moment / 10:06.3f},allocate,{pointer:#x},{held[pointer]},0"))
    in_order = [event for event in read(log, *(row for _, row in rows)) if isinstance(event, (ev.Alloc, ev.Free))]
    joined = read(log, *(row for _, row in sorted(rows, key=lambda one: one[0])))
    assert [event for event in joined if isinstance(event, (ev.Alloc, ev.Free))] == in_order
    assert sum(isinstance(event, ev.Alloc) for event in in_order) > 50


def test_a_compressed_log(log: Path) -> None:
    path = log.with_suffix(".csv.gz")
    path.write_bytes(gzip.compress((HEADER + "7,1,allocate,0x10,8,0\n").encode()))
    assert read_rmm(path) == [ev.Alloc("0x10", 8, 0)]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TraceError, match="damaged"):
        read_rmm(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["7,1,allocate,0x10,8"], r":2: pointer '0x10': 5 cells under 6 columns"),
        (["7,1,resize,0x10,8,0"], r":2: pointer '0x10': action 'resize' is none of"),
        (["7,1,allocate,0x10,-8,0"], r":2: pointer '0x10': size '-8'"),
        (["7,1,allocate,0x10,8.5,0"], r":2: pointer '0x10': size '8.5'"),
        (["7,1,allocate,place,8,0"], r":2: pointer 'place': pointer 'place' is not an address"),
        (["7,1,allocate,0x10,8,s"], r":2: pointer '0x10': stream 's' is not an address"),
        (["7,noon,allocate,0x10,8,0"], r":2: pointer '0x10': time 'noon'"),
        (["7,1,allocate,(nil),8,0"], r":2: .*8 bytes at no address"),
        (["7,1,allocate,0x10,8,0", "7,2,allocate,0x10,8,0"], r":3: pointer '0x10' is allocated, and is since line 2"),
        (["7,1,free,0x10,8,0"], r":2: pointer '0x10' is freed and not allocated"),
        (
            ["7,1,allocate,0x10,8,0", "", "7,2,free,0x10,9,0"],
            r":4: pointer '0x10' is freed with 9 bytes, and was allocated with 8 on line 2",
        ),
        (["7,1,allocate,0x10,8,0", "7,2,fre"], r":3: 3 cells"),
    ],
)
def test_refusals_name_the_file_the_line_and_the_pointer(log: Path, rows: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=r"rmm\.dev0\.csv" + message) as caught:
        read(log, *rows)
    assert caught.value.line == int(message.split(":")[1])


def test_what_is_no_log(log: Path) -> None:
    log.write_text("id,lower,upper,size\n")
    with pytest.raises(TraceError, match=r":1: not an RMM log"):
        read_rmm(log)
    log.write_bytes(HEADER.encode() + b"7,1,\xff")
    with pytest.raises(TraceError, match="not a text file"):
        read_rmm(log)
