"""Hypothesis strategies for well-formed traces."""

from __future__ import annotations

from hypothesis import strategies as st

from memx.trace import Header
from memx.trace import events as ev

PAGE = 1 << 16
names = st.sampled_from([0, 1, 1 << 70, "0", "a", "é\n", ""])
streams = st.integers(0, 4)
sizes = st.one_of(st.integers(0, 8 * PAGE), st.sampled_from([-1, -(1 << 70), 1 << 63, (1 << 64) - 1]))
expectations = st.sampled_from(ev.EXPECTATIONS)
optional_text = st.none() | st.text(max_size=6)
parts = st.integers(0, 1 << 40)

headers = st.builds(
    Header,
    name=st.text(max_size=10),
    page=st.sampled_from([4096, PAGE, 2 << 20]),
    device_limit=st.none() | parts,
    host_limit=st.none() | parts,
    reuse=st.sampled_from([None, "stream", "default", "mutual"]),
    lazy=st.sampled_from([None, True, False]),
)

operands = st.lists(st.builds(ev.Operand, names, parts, st.none() | parts), max_size=3).map(tuple)

any_event = st.one_of(
    st.builds(ev.Alloc, names, sizes, streams, parts, optional_text, st.booleans(), expectations),
    st.builds(ev.Free, names, st.none() | streams, expectations),
    st.builds(ev.Kernel, operands, operands, streams, optional_text, expectations),
    st.builds(ev.RecordStream, names, streams),
    st.builds(ev.CheckContents, names),
    st.builds(ev.Stream, st.integers(1, 4), st.sampled_from(ev.STREAM_KINDS)),
    st.builds(ev.Wait, streams, streams),
    st.builds(ev.Sync, st.none() | streams),
    st.builds(ev.Hold, streams),
    st.builds(ev.Release, streams),
    st.builds(ev.Thread, names),
    st.builds(ev.Trim),
    st.builds(ev.ResetPeak),
    st.builds(ev.Rebalance),
    st.builds(ev.Pause, st.text(max_size=6), st.booleans()),
    st.builds(ev.Resume, st.text(max_size=6)),
    st.builds(ev.Capture, st.sampled_from(sorted(ev.Capture.ops.values())), streams),
    st.builds(ev.Fail, st.just("cuMemMap"), parts, parts, st.floats(0, 1), st.just("UNKNOWN")),
    st.builds(ev.Check, st.text(max_size=6), sizes, st.none() | sizes, st.none() | sizes),
    st.builds(ev.Step, optional_text),
)


def _legal(events: list[ev.Event]) -> list[ev.Event]:
    """The events that a reader must accept after those before them."""
    out: list[ev.Event] = []
    live: set[ev.Id] = set()
    nameable: set[ev.Id] = set()
    declared: set[int] = set()
    for event in events:
        if isinstance(event, ev.Alloc):
            if event.id in live:
                continue
            nameable.add(event.id)
            if event.expect == "ok":
                live.add(event.id)
        elif isinstance(event, ev.Free):
            if event.id not in nameable and event.expect == "ok":
                continue
            if event.id in live:
                live.discard(event.id)
                nameable.discard(event.id)
        elif isinstance(event, ev.Kernel):
            named = {operand.id for operand in event.reads + event.writes}
            if event.expect == "ok" and not named <= nameable:
                continue
        elif isinstance(event, (ev.RecordStream, ev.CheckContents)):
            if event.id not in nameable:
                continue
        elif isinstance(event, ev.Stream):
            if event.stream in declared:
                continue
            declared.add(event.stream)
        out.append(event)
    return out


traces = st.lists(any_event, max_size=30).map(_legal)
