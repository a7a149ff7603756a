"""From the allocator's notes to events."""

from __future__ import annotations

from memx.trace import events as ev
from memx.trace.recorder import translate


def test_addresses_become_ids_and_handles_numbers() -> None:
    kinds = {0x7000: "nonblocking", 2: "per_thread"}
    notes = [
        ("free", 0x9000, 0, 0, 0, 1),  # allocated before the recording
        ("alloc", 0x1000, 100, 0, 0, 2),
        ("alloc", 0x2000, 200, 0x7000, 3, 3),
        ("wait", 0, 0, 2, 0x7000, 4),
        ("record_stream", 0x2000, 0, 2, 0, 5),
        ("free", 0x1000, 100, 1, 0, 6),
        ("alloc", 0x1000, 50, 0x7000, 0, 7),
        ("free", 0x2000, 200, 0x7000, 3, 8),
    ]
    assert translate(notes, kinds.__getitem__) == [
        ev.Alloc(0, 100, 0),
        ev.Stream(1, "nonblocking"),
        ev.Alloc(1, 200, 1, tag="3"),
        ev.Stream(2, "per_thread"),
        ev.Wait(2, 1),
        ev.RecordStream(1, 2),
        ev.Free(0, 0),
        ev.Alloc(2, 50, 1),
        ev.Free(1, 1),
    ]
