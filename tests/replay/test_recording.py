"""A recording of a program, replayed, does what the program did."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda.core import Device, StreamOptions

import memx
from memx.replay import Limits, replay
from memx.trace import Recorder, read
from memx.trace import events as ev

PAGE = 64 << 10


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_recorded_program_can_be_replayed(tmp_path: Path, suffix: str) -> None:
    device = Device(0)
    device.set_current()
    mr = memx.MemoryResource(device, device_limit="16p", host_limit=0, page=PAGE)
    side = device.create_stream(options=StreamOptions(nonblocking=True))
    before = mr.allocate(PAGE)
    with Recorder(mr, "program") as recording:
        a = mr.allocate(3 * PAGE)
        with mr.tag("weights"):
            b = mr.allocate(100, stream=side)
        mr.note_wait(side, 0)
        mr.record_stream(a, side)
        before.close()
        a.close()
        c = mr.allocate(2 * PAGE)
    c.close()
    b.close()
    path = tmp_path / f"program{suffix}"
    recording.save(path)
    trace = read(path)
    assert (trace.name, trace.page) == ("program", PAGE)
    alloc_b = ev.Alloc(1, 100, 1, tag=next(e.tag for e in trace if isinstance(e, ev.Alloc) and e.id == 1))
    assert alloc_b.tag
    assert list(trace) == [
        ev.Alloc(0, 3 * PAGE),
        ev.Stream(1, "nonblocking"),
        alloc_b,
        ev.Wait(1, 0),
        ev.RecordStream(0, 1),
        ev.Free(0, 0),
        ev.Alloc(2, 2 * PAGE),
    ]
    result = replay(trace, Limits(16 * PAGE, 0, PAGE, "default", False))
    assert result.ok
    assert result.peak_allocated_bytes == 3 * PAGE + 512


@pytest.mark.usefixtures("oracle")
def test_nothing_is_kept_outside_the_block() -> None:
    mr = memx.MemoryResource(0, device_limit="4p", host_limit=0, page=PAGE)
    mr.allocate(PAGE).close()
    with Recorder(mr) as recording:
        pass
    mr.allocate(PAGE).close()
    assert recording.events == []
    assert mr.native.drain_events() == []
