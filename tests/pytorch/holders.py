"""Whose tensors a trace holds at its peak: bytes by the operation that made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from memx.trace import events as ev

LASTING = "what lasts"


@dataclass
class Peak:
    """The most that a trace holds.

    Attributes
    ----------
    bytes : int
    without_insides : int
        The most without what operations allocate and free while they run.
    by_maker : Counter
        Bytes at the peak by the operation that made them; `NAME, inside` for what it frees again, and :data:`LASTING`
        for what is there before and after every step.
    """

    bytes: int = 0
    without_insides: int = 0
    by_maker: Counter[str] = field(default_factory=Counter)


def peak_of(events: Iterable[ev.Event]) -> Peak:
    """What `events` hold at most after their first step, if they have one.

    What lasts is tagged so, or lives from before the first step's end to the last one's.
    """
    events = list(events)
    makers, lasting = _makers(events)
    begin = next((i + 1 for i, event in enumerate(events) if isinstance(event, ev.Step)), 0)
    live: dict[ev.Id, tuple[str, int]] = {}
    found = Peak()
    now = outside = 0
    for number, event in enumerate(events):
        if isinstance(event, ev.Alloc):
            maker = LASTING if number in lasting else makers.get(number, "")
            live[event.id] = maker, event.size
            now += event.size
            outside += 0 if maker.endswith(", inside") else event.size
        elif isinstance(event, ev.Free):
            maker, size = live.pop(event.id)
            now -= size
            outside -= 0 if maker.endswith(", inside") else size
        if number < begin:
            continue
        found.without_insides = max(found.without_insides, outside)
        if now > found.bytes:
            found.bytes = now
            found.by_maker = Counter()
            for maker, size in live.values():
                found.by_maker[maker] += size
    return found


def _makers(events: list[ev.Event]) -> tuple[dict[int, str], set[int]]:
    """Of each allocation, by its place: the first operation that has it, or that runs when it goes; and what lasts."""
    makers: dict[int, str] = {}
    unused: dict[ev.Id, int] = {}
    gone: list[int] = []
    live: dict[ev.Id, int] = {}
    steps = [number for number, event in enumerate(events) if isinstance(event, ev.Step)]
    first, last = (steps[0], steps[-1]) if steps else (0, 0)
    lasting: set[int] = set()
    for number, event in enumerate(events):
        if isinstance(event, ev.Alloc):
            live[event.id] = unused[event.id] = number
            if number < first or event.tag == "persistent":
                lasting.add(number)
        elif isinstance(event, ev.Free):
            born = live.pop(event.id)
            if number < last:
                lasting.discard(born)
            if event.id in unused:
                gone.append(unused.pop(event.id))
        elif isinstance(event, ev.Kernel):
            name = event.name or ""
            for place in gone:
                makers[place] = f"{name}, inside"
            gone.clear()
            for operand in (*event.writes, *event.reads):
                if operand.id in unused:
                    makers[unused.pop(operand.id)] = name
    return makers, lasting
