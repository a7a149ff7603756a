"""PyTorch memory snapshots: plain data in every pickle protocol, cut-off histories, hostile and damaged files."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

import memx
from memx.errors import PlanError
from memx.plan import Buffers, read_buffers, read_snapshot


def entry(action: str, addr: int, size: int = 512, stream: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1, "frames": [], **more}


def block(state: str, size: int, **more: Any) -> dict[str, Any]:
    return {"size": size, "state": state, "frames": [], **more}


def segment(address: int, *blocks: dict[str, Any], device: int = 0, stream: int = 0) -> dict[str, Any]:
    total = sum(b["size"] for b in blocks)
    return {
        "device": device,
        "address": address,
        "total_size": total,
        "stream": stream,
        "segment_type": "large",
        "blocks": list(blocks),
    }


def dump(path: Path, *histories: list[Any], segments: tuple[Any, ...] = (), protocol: int = 4) -> Path:
    snapshot = {"segments": list(segments), "device_traces": list(histories), "allocator_settings": {}}
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.pickle"


def spans(buffers: Buffers) -> list[tuple[Any, int, int, int]]:
    return [(b.id, b.lower, b.upper, b.size) for b in buffers]


PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_events_in_each_protocol(path: Path, protocol: int) -> None:
    history = [entry("alloc", 0x1000, 700), entry("free_requested", 0x1000, 700), entry("free_completed", 0x1000, 700)]
    # Known by its content.
    buffers, source = read_buffers(dump(path.with_name("memory"), history, protocol=protocol))
    assert spans(buffers) == [("0x1000", 0, 2, 700)]
    assert buffers.alignment.tolist() == [512]
    assert source.kind == "snapshot"


def test_memory_is_kept_until_the_free_is_complete(path: Path) -> None:
    history = [
        entry("alloc", 0x10, 8),
        entry("free_requested", 0x10),
        entry("segment_alloc", 0x99, 1 << 21),
        entry("free_completed", 0x10),
        {"action": "oom", "device_free": 3, "size": 9, "stream": 0},
        entry("alloc", 0x10, 9),
    ]
    assert spans(read_snapshot(dump(path, history))) == [("0x10", 0, 3, 8), ("0x10", 5, 6, 9)]


def test_what_the_ring_lost_lived_from_the_start(path: Path) -> None:
    """0x10 is freed but its allocation is lost; 0x30 and 0x50 only the segments know."""
    history = [
        entry("free_requested", 0x10, 64),
        entry("free_completed", 0x10, 64),
        entry("alloc", 0x70, 16),
    ]
    held = segment(
        0x30,
        block("active_allocated", 0x20, requested_size=30, address=0x30),
        block("active_pending_free", 0x20, address=0x50),
        block("active_allocated", 0x10, requested_size=16, address=0x70),
        block("inactive", 0x10, address=0x80),
    )
    got = spans(read_snapshot(dump(path, history, segments=(held,))))
    assert got == [("0x10", 0, 4, 64), ("0x30", 1, 6, 30), ("0x50", 2, 6, 32), ("0x70", 5, 6, 16)]


def test_blocks_without_addresses_lie_one_after_the_other(path: Path) -> None:
    held = segment(0x100, block("inactive", 0x40), block("active_allocated", 0x20))
    got = spans(read_snapshot(dump(path, [entry("alloc", 0x10)], segments=(held,))))
    assert got[0] == ("0x140", 0, 2, 0x20)


def test_streams_whose_order_is_not_known_do_not_share(path: Path) -> None:
    history = [
        entry("alloc", 0x10, stream=1),
        entry("free_requested", 0x10, stream=1),
        entry("free_completed", 0x10, stream=1),
        entry("alloc", 0x10, stream=2),
    ]
    assert spans(read_snapshot(dump(path, history)))[0] == ("0x10", 0, 4, 512)


def test_devices(path: Path) -> None:
    dump(path, [], [entry("alloc", 0x10)], segments=(segment(0x30, block("active_allocated", 8), device=0),))
    assert spans(read_snapshot(path)) == [("0x10", 0, 1, 512)]
    dump(path, [entry("alloc", 0x20)], [entry("alloc", 0x10)])
    with pytest.raises(PlanError, match="devices 0, 1 have a history"):
        read_snapshot(path)
    assert read_snapshot(path, device=1).ids == ["0x10"]
    with pytest.raises(PlanError, match="device 2 has no history"):
        read_snapshot(path, device=2)


def test_unknown_fields_and_actions_are_ignored(path: Path) -> None:
    history = [entry("alloc", 0x10, novelty={"a": [1, (2,)]}), entry("novelty", 0x20), entry("alloc", 0x20)]
    history[1].pop("size")
    assert spans(read_snapshot(dump(path, history))) == [("0x10", 0, 3, 512), ("0x20", 2, 3, 512)]


def test_fields_of_all_ones(path: Path) -> None:
    most = (1 << 64) - 1
    ignored = dump(path, [entry("alloc", most, 8, most, time_us=most)])
    assert spans(read_snapshot(ignored)) == [(hex(most), 0, 1, 8)]
    with pytest.raises(PlanError, match=rf"history entry 1: buffer '0x20': size {most}"):
        read_snapshot(dump(path, [entry("alloc", 0x10), entry("alloc", 0x20, most)]))


@pytest.mark.parametrize("field", ["action", "addr", "size", "stream"])
def test_missing_fields_are_named(path: Path, field: str) -> None:
    history = [entry("alloc", 0x10), entry("alloc", 0x20)]
    del history[1][field]
    with pytest.raises(PlanError, match=rf"history entry 1 has no '{field}'"):
        read_snapshot(dump(path, history))


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        ([], "the snapshot is not a dict"),
        ({"device_traces": [[1]]}, "no 'segments'|not a dict"),
        ({"segments": []}, "no 'device_traces'"),
        ({"segments": [], "device_traces": [[], []]}, "no history"),
        ({"segments": [], "device_traces": [[7]]}, "history entry 0 is not a dict"),
        ({"segments": [], "device_traces": [[entry("alloc", 1), entry("alloc", 1)]]}, "entry 1 allocates 0x1"),
        ({"segments": [], "device_traces": [[entry("alloc", 1, True)]]}, "'size' of history entry 0 is True"),
        ({"segments": [{"device": 0}], "device_traces": [[entry("alloc", 1)]]}, "segment 0 has no 'stream'"),
    ],
)
def test_what_is_no_snapshot_is_refused(path: Path, snapshot: object, message: str) -> None:
    path.write_bytes(pickle.dumps(snapshot, 4))
    with pytest.raises(PlanError, match=message):
        read_snapshot(path)


class _Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("false",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("snapshot", [{"segments": _Hostile()}, _Hostile()], ids=["inside", "alone"])
def test_a_pickle_that_names_a_function_is_refused(path: Path, protocol: int, snapshot: object) -> None:
    path.write_bytes(pickle.dumps(snapshot, protocol))
    for read in (read_snapshot, read_buffers):
        with pytest.raises(PlanError, match=r"refused: .*system"):
            read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\x80\x02\x82\x01.", "damaged|refused"),  # an extension's number, for a class
        (b"P7\n.", "refused: the pickle refers to '7'"),  # something kept outside
        (b"(I1\nios\nsystem\n.", "refused: .*os.system"),  # an instance, as of old
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "refused: .*os.system"),  # a name from the stack
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.", "damaged|more memory"),  # bytes that are not there
    ],
)
def test_other_ways_out_of_a_pickle_are_closed(path: Path, text: bytes, message: str) -> None:
    path.write_bytes(text)
    with pytest.raises(PlanError, match=message):
        read_snapshot(path)


def test_damaged_pickles_are_refused(path: Path) -> None:
    whole = dump(path, [entry("alloc", 0x10 * i) for i in range(50)]).read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(PlanError, match=r"snapshot\.pickle"):
            read_snapshot(path)


def long_history(path: Path, pairs: int, protocol: int = 5) -> Path:
    history = []
    for i in range(pairs):
        history.append(entry("alloc", 0x1000 * (i % 100), 512 + i % 7))
        history.append(entry("free_completed", 0x1000 * (i % 100)))
    history[-1] = entry("alloc", 0xABC000, 4096)
    return dump(path, history, protocol=protocol)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_compressed(path: Path, suffix: str) -> None:
    dump(path, [entry("alloc", 0x10)])
    packed = path.with_name(path.name + suffix)
    packed.write_bytes({"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix](path.read_bytes()))
    assert spans(read_buffers(packed)[0]) == [("0x10", 0, 1, 512)]


def test_an_old_snapshot_and_a_new_one(path: Path) -> None:
    """Without most fields, as PyTorch 2.1 wrote it, and with those that 2.14 adds."""
    held = {"device": 0, "address": 0x100, "stream": 0, "blocks": [{"size": 64, "state": "active_allocated"}]}
    old = {"segments": [held], "device_traces": [[{"action": "alloc", "addr": 0x10, "size": 8, "stream": 0}]]}
    new = {
        "segments": [
            {
                **segment(0x100, block("active_allocated", 64, address=0x100, requested_size=64)),
                "segment_pool_id": (0, 0),
                "is_expandable": True,
                "frames": [],
            }
        ],
        "device_traces": [[entry("alloc", 0x10, 8, compile_context="N/A", user_metadata="", time_us=1 << 60)], []],
        "allocator_settings": {"expandable_segments": True, "roundup_power2_divisions": {}},
        "external_annotations": [{"stage": "START", "name": "forward", "device": 0, "time_us": 1}],
        "host_segments": [{"address": 1, "blocks": []}],
        "host_traces": [{"action": "alloc", "addr": 1}],
    }
    for snapshot in (old, new):
        path.write_bytes(pickle.dumps(snapshot))
        assert spans(read_snapshot(path)) == [("0x100", 0, 2, 64), ("0x10", 1, 2, 8)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_long_histories_are_the_same_in_each_protocol(path: Path, protocol: int) -> None:
    buffers = read_snapshot(long_history(path, 3000, protocol))
    assert len(buffers) == 3001
    assert spans(buffers)[:2] == [("0x0", 0, 1, 512), ("0x1000", 2, 3, 513)]
    assert spans(buffers)[-1] == ("0xabc000", 5999, 6000, 4096)


def test_the_last_event_of_many_is_there(path: Path) -> None:
    buffers = read_snapshot(long_history(path, 20_000))
    assert len(buffers) == 20_001
    assert spans(buffers)[-1] == ("0xabc000", 39_999, 40_000, 4096)


READER = """
import resource, sys
from memx.plan import read_snapshot
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
buffers = read_snapshot(sys.argv[1])
print(len(buffers), buffers[-1].id, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_700000_events_take_bounded_memory(path: Path) -> None:
    long_history(path, 350_000)
    ours = {**os.environ, "PYTHONPATH": str(Path(memx.__file__).parents[1])}
    child = [sys.executable, "-c", READER, str(path)]
    said = subprocess.run(child, capture_output=True, text=True, check=True, env=ours, cwd=path.parent).stdout.split()
    assert said[:2] == ["350001", "0xabc000"]
    assert int(said[2]) < 1200 * 700_000
