"""What PyTorch's allocators and memx make of the same work, on the simulated device, in one run.

    python benchmarks/compare.py TRACES... [--output docs/compare.md]

Real training steps and the patterns that defeat a caching allocator, each with PyTorch's native allocator, with its
expandable segments and with memx as PyTorch would use it (streams that last, eager buffers). Memory is touched and has
no contents, so that full sizes fit; host memory is off, so that all three have the same device and nothing else. Needs
PyTorch's CUDA build; no GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import memx
from memx.replay import Limits, Result, prepare_device, replay
from memx.replay.smallest import smallest_pages
from memx.replay.torch_allocator import SETTINGS, set_up
from memx.trace import Trace
from memx.trace import events as ev

MIB = 1 << 20
PAGE = 2 * MIB
DEVICE = 64 << 30
PATTERN_DEVICE = 8192 * MIB
RUNS = 5
STEPS = 5
ALLOCATORS = ("torch-native", "torch-expandable", "memx")


class Script:
    """A pattern's events; sizes in MiB."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def alloc(self, name: str, mib: float, stream: int = 0, tag: str | None = None) -> None:
        """Allocate and use."""
        self.events.append(ev.Alloc(name, int(mib * MIB), stream, tag=tag))
        self.events.append(ev.Kernel(writes=(ev.Operand(name),), stream=stream))

    def free(self, *names: str) -> None:
        """Free on the allocation's stream."""
        self.events += [ev.Free(name) for name in names]

    def use_elsewhere(self, name: str, stream: int, on: int) -> None:
        """Use on another stream, ordered after the first, and say so."""
        self.events.append(ev.Wait(stream, on))
        self.events.append(ev.Kernel(reads=(ev.Operand(name),), stream=stream))
        self.events.append(ev.RecordStream(name, stream))

    def busy(self, stream: int) -> None:
        """What is queued on the stream from here on is not over until somebody waits for it."""
        self.events.append(ev.Hold(stream))


def patterns() -> dict[str, list[ev.Event]]:
    """Orders of allocations and frees that defeat a caching allocator, for a device of 8192 MiB."""
    out: dict[str, list[ev.Event]] = {}

    s = Script()
    s.alloc("fill", 3584)
    s.alloc("b", 4096)
    s.free("b")
    s.alloc("x", 500)
    s.alloc("y", 500)
    s.free("x")
    s.alloc("again", 4096)
    out["1: a large segment held by a small tensor"] = s.events

    s = Script()
    s.alloc("g", 5120)
    s.free("g")
    s.alloc("a", 4096)
    s.alloc("c", 1024)
    s.alloc("k", 2560)
    s.busy(1)
    s.use_elsewhere("a", 1, 0)
    s.free("a")
    s.alloc("b", 4096)
    out["2: the only room is another stream's for a while"] = s.events

    s = Script()
    s.alloc("x", 5120, tag="pool")
    s.free("x")
    s.alloc("y", 6144, tag="pool")
    out["3: a user's pool that grows"] = s.events

    s = Script()
    s.alloc("a", 4096, 1)
    s.free("a")
    s.alloc("k", 16, 1)
    s.alloc("b", 5120, 0)
    out["4: another stream's cached segment"] = s.events

    s = Script()
    s.busy(2)
    for i in range(8):
        s.alloc(f"x{i}", 1024, 1)
        s.use_elsewhere(f"x{i}", 2, 1)
        s.free(f"x{i}")
    s.alloc("after", 1024, 1)
    out["5: recorded on a busy stream, freed, again and again"] = s.events

    s = Script()
    for i in range(8):
        s.alloc(f"x{i}", 16)
    s.free(*(f"x{i}" for i in range(8)))
    for i in range(4):
        s.alloc(f"y{i}", 32)
    out["6: larger tensors after smaller ones"] = s.events

    s = Script()
    for n in range(8, 25):
        for i in range(8):
            s.alloc(f"x{i}", 32 * n)
        s.free(*(f"x{i}" for i in range(8)))
    out["7: every step a little larger"] = s.events

    s = Script()
    for i in range(100):
        s.events.append(ev.Alloc(f"x{i}", 10 * MIB + 1, 0))
    for i in range(100):
        s.events.append(ev.Alloc(f"y{i}", MIB + 1, 0))
    out["8: a byte more than a round size"] = s.events
    return out


@dataclass
class Workload:
    """Events, and how much of them lives at once."""

    name: str
    events: Sequence[ev.Event]
    peak_live_bytes: int
    device_bytes: int  # what it runs on first
    is_step: bool  # of training, rather than a pattern


def live_peak(events: Iterable[ev.Event]) -> int:
    """Most requested bytes alive at once."""
    live: dict[ev.Id, int] = {}
    total = most = 0
    for event in events:
        if isinstance(event, ev.Alloc):
            live[event.id] = event.size
            total += event.size
            most = max(most, total)
        elif isinstance(event, ev.Free):
            total -= live.pop(event.id)
    return most


def workloads(paths: Iterable[Path]) -> Iterator[Workload]:
    """The traces, each with room for twice its peak, and the patterns."""
    for path in paths:
        trace = Trace(path)
        yield Workload(trace.name, list(trace), trace.peak_live_bytes(), 2 * trace.peak_live_bytes() + PAGE, True)
    for name, events in patterns().items():
        yield Workload(name, events, live_peak(events), PATTERN_DEVICE, False)


def late(events: Sequence[ev.Event]) -> Iterator[ev.Event]:
    """The step again and again, the device a whole step behind: none of its work is over before its last call."""
    freed = {event.id for event in events if isinstance(event, ev.Free)}
    streams = sorted({event.stream for event in events if isinstance(event, ev.Alloc | ev.Kernel)})

    def renamed(operands: Iterable[ev.Operand], step: int) -> tuple[ev.Operand, ...]:
        return tuple(replace(operand, id=name(operand.id, step)) for operand in operands)

    def name(buffer: ev.Id, step: int) -> ev.Id:
        return f"{buffer} of step {step}" if buffer in freed else buffer

    for step in range(STEPS):
        yield from (ev.Hold(stream) for stream in streams)
        for event in events:
            if isinstance(event, ev.Kernel):
                yield replace(event, reads=renamed(event.reads, step), writes=renamed(event.writes, step))
            elif isinstance(event, ev.Alloc | ev.Free | ev.RecordStream):
                if step == 0 or event.id in freed:
                    yield replace(event, id=name(event.id, step))
            else:
                yield event
        yield from (ev.Release(stream) for stream in streams)
        yield ev.Sync()


@dataclass
class Outcome:
    """One allocator on one workload."""

    first: Result
    late: Result | None  # of traces
    smallest_bytes: int


def once(allocator: str, events: Iterable[ev.Event], device_bytes: int) -> Result:
    """One run on a device of that size."""
    limits = Limits(device_bytes // PAGE * PAGE, 0, PAGE, "default", False)
    return replay(events, limits, allocator=allocator, framework=True, verify=False)


def _reserved(result: Result) -> int:
    return result.peak_reserved_bytes


def run_all(allocator: str, works: list[Workload]) -> list[Outcome]:
    """Every workload with one allocator; in a process of its own."""
    if allocator in SETTINGS:
        set_up(allocator)
    prepare_device(Limits(DEVICE, 0, PAGE, "default", False), simulate=True, contents=False)
    out = []
    for work in works:
        first = max((once(allocator, work.events, work.device_bytes) for _ in range(RUNS)), key=_reserved)
        live = work.peak_live_bytes
        smallest = PAGE * smallest_pages(
            lambda pages, work=work: once(allocator, work.events, pages * PAGE).ok,
            live // PAGE - 1,
            4 * live // PAGE + 8,
        )
        print(f"{allocator}: {work.name}: {smallest // MIB} MiB", file=sys.stderr)
        behind = once(allocator, list(late(work.events)), work.device_bytes) if work.is_step else None
        out.append(Outcome(first, behind, smallest))
    return out


def cells(outcome: Outcome, work: Workload) -> list[str]:
    """One row's numbers."""
    result = outcome.first
    return [
        "yes" if result.ok else "**no**",
        f"{result.peak_reserved_bytes / MIB:.0f}",
        f"{result.peak_reserved_bytes / work.peak_live_bytes:.3f}",
        f"{outcome.late.peak_reserved_bytes / work.peak_live_bytes:.3f}" if outcome.late else "",
        f"{outcome.smallest_bytes / MIB:.0f}",
        str(sum(result.driver_calls.values())),
        f"{(result.modelled_driver_us or 0) / 1000:.2f}",
        f"{result.wall_s * 1e6 / len(work.events):.0f}",
    ]


PAGE_TEXT = """# PyTorch's allocators and memx on the same work

Made by `benchmarks/compare.py` on {day}, with PyTorch {torch} and memx {memx} on the simulated device
({machine}). Sizes are in MiB. Host memory is off: all three have the device and nothing else.
*Device*: what the work ran on first; *survives*: whether every allocation succeeded there; *reserved*: the peak of
device memory held, and that over the live peak, in the worst of {runs} runs (what memx finds over and can move to other
addresses depends on how far the device has got); *late*: reserved over live when the step is taken {steps} times and
none of a step's work is over before its last call; *smallest*: the smallest device on which every allocation succeeds,
found by bisection in steps of 2 MiB; *driver calls*: for memory, events and streams, from nothing; *driver ms*: those
calls at the simulated driver's cost table, **modelled, not measured**; *us an event*: wall time of the whole replay,
Python included, which is no measure of a hit's cost (`benchmarks/pool.py` is).

{table}

## What was aimed at

{aims}

## What the patterns are

The events are in `benchmarks/compare.py`. PyTorch fails where it cannot give a segment back because a small tensor
lives in it, because another stream or pool owns it, or because what a busy stream used is only looked at after the
request has failed; memx moves free pages between them. Expandable segments help within a stream and a pool, not across.
"""


def table(works: list[Workload], outcomes: dict[str, list[Outcome]]) -> str:
    """Markdown: a row for each workload and allocator."""
    head = (
        "work, live peak, device, allocator, survives, reserved, / live, late, smallest, driver calls, driver ms, "
        "us an event"
    )
    names = head.split(", ")
    rows = [names, ["---"] * len(names)]
    for i, work in enumerate(works):
        for allocator in ALLOCATORS:
            first = allocator == ALLOCATORS[0]
            label = [work.name, f"{work.peak_live_bytes / MIB:.0f}", f"{work.device_bytes / MIB:.0f}"]
            rows.append([*(label if first else ["", "", ""]), allocator, *cells(outcomes[allocator][i], work)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def aims(works: list[Workload], outcomes: dict[str, list[Outcome]]) -> str:
    """Which of the aims for memx this run meets, in words."""
    ours, theirs = outcomes["memx"], outcomes["torch-expandable"]
    steps = [i for i, work in enumerate(works) if work.is_step]

    def over_live(outcome: Outcome, i: int) -> float:
        return outcome.first.peak_reserved_bytes / works[i].peak_live_bytes

    less = sum(ours[i].first.peak_reserved_bytes <= theirs[i].first.peak_reserved_bytes for i in steps)
    behind = sum(ours[i].late.peak_reserved_bytes <= theirs[i].late.peak_reserved_bytes for i in steps)
    smaller = sum(ours[i].smallest_bytes <= theirs[i].smallest_bytes for i in steps)
    tight = sum(ours[i].first.peak_reserved_bytes <= 1.01 * works[i].peak_live_bytes + PAGE for i in steps)
    most = max(over_live(ours[i], i) for i in steps), max(over_live(theirs[i], i) for i in steps)
    survived = sum(outcome.first.ok for i, outcome in enumerate(ours) if i not in steps)
    return "\n".join(
        [
            f"- To reserve no more than expandable segments: on {less} of {len(steps)} traces; over the live peak "
            f"at most {most[0]:.3f} here, {most[1]:.3f} there; when the device is a step behind, on {behind}.",
            f"- To reserve at most 1.01 of what lives and a page, here with handles of up to eight pages: on {tight}.",
            f"- To survive on a device no larger than expandable segments need, without host memory: on {smaller}.",
            f"- To survive the patterns: {survived} of {len(works) - len(steps)}.",
        ]
    )


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    from importlib.metadata import version

    works = list(workloads(sorted(arguments.traces)))
    outcomes = {}
    for allocator in ALLOCATORS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            outcomes[allocator] = pool.apply(run_all, (allocator, works))
    page = PAGE_TEXT.format(
        day=date.today(),
        runs=RUNS,
        steps=STEPS,
        torch=version("torch"),
        memx=memx.__version__,
        machine=f"{platform.machine()}, Python {platform.python_version()}",
        table=table(works, outcomes),
        aims=aims(works, outcomes),
    )
    if arguments.output:
        arguments.output.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
