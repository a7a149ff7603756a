"""Bytes that a training step moves on a device too small for it, by what gives way.

    python benchmarks/eviction.py TRACES... [--output docs/eviction.md]

Each trace runs lazily on the simulated device, its sizes and pages 1/64 of the real ones, contents verified, with 0.8,
0.6 and 0.4 of its peak (or what its largest operation needs). What persists starts on the host and has to be there
again at the end, so that the bytes compare with the bound: the linear relaxation of moving whole objects with the
future known. Sizes in the tables are those of the real step.

"ahead" is "planned" with a fiftieth of the device each for copies out ahead of need (low_water) and for what is brought
in before its use (look_ahead).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path

from memx.plan.migration.bound import relax
from memx.plan.migration.problem import read_migration
from memx.replay import Limits, prepare_device, replay
from memx.trace import Trace
from memx.trace import events as ev

SCALE = 64
PAGE = (2 << 20) // SCALE
SPARE_PAGES = 16  # an operation's operands share their outer pages with others
AHEAD = 50  # one part of the device in so many
FRACTIONS = (0.8, 0.6, 0.4)
POLICIES = ("lru", "clock", "cost", "planned")
MIB = 1 << 20


@dataclass(slots=True)
class Row:
    """One trace at one size; bytes of the real step."""

    trace: str
    fraction: float
    limit: int
    bound: int
    moved: dict[str, int]
    ahead: int
    ahead_share: float  # of the bytes brought in, those brought before their use


def around(trace: Trace) -> tuple[list[ev.Event], list[ev.Event]]:
    """The trace's events with what persists on the host before and after; and only what comes before."""
    events = list(trace)
    first = next(i for i, event in enumerate(events) if isinstance(event, ev.Kernel))
    before = events[:first]
    allocated = (event for event in before if isinstance(event, ev.Alloc))
    kept = [event.id for event in allocated if event.tag == "persistent" and event.size]
    before += [ev.Kernel(writes=(ev.Operand(name),)) for name in kept]
    before += [ev.Pause("persistent"), ev.Resume("persistent")]
    last = max(i for i, event in enumerate(events) if isinstance(event, ev.Kernel)) + 1
    if any(isinstance(event, ev.Free) and event.id in kept for event in events[first:last]):
        raise RuntimeError(f"{trace.name}: what persists is freed")
    return before + events[first:last] + [ev.Pause("persistent")] + events[last:], before


def measure(path: Path) -> Iterator[Row]:
    """All sizes and policies of a trace."""
    trace = Trace(path, PAGE, Fraction(1, SCALE))
    problem = read_migration(trace)
    peak = trace.peak_live_bytes()
    least = int(problem.step_bytes.max())
    events, before = around(trace)
    whole = Limits(2 * peak, 4 * peak, PAGE, "default", lazy=True)
    prepare_device(whole, simulate=True)
    started = replay(before, whole).migrated_out_bytes
    for fraction in FRACTIONS:
        limit = -(-max(int(fraction * peak), least + SPARE_PAGES * PAGE) // PAGE) * PAGE
        moved: dict[str, int] = {}
        for policy in POLICIES:
            result = replay(events, replace(whole, device_limit=limit, eviction=policy))
            if not result.ok:
                raise RuntimeError(f"{trace.name} at {fraction}, {policy}: {result.failures or result}")
            moved[policy] = (result.migrated_in_bytes + result.migrated_out_bytes - started) * SCALE
        lent = -(-limit // AHEAD // PAGE) * PAGE
        ahead = replay(events, replace(whole, device_limit=limit, eviction="planned", low_water=lent, look_ahead=lent))
        if not ahead.ok:
            raise RuntimeError(f"{trace.name} at {fraction}, ahead: {ahead.failures or ahead}")
        yield Row(
            trace.name,
            fraction,
            limit * SCALE,
            relax(problem, limit).lower_bound * SCALE,
            moved,
            (ahead.migrated_in_bytes + ahead.migrated_out_bytes - started) * SCALE,
            ahead.prefetched_used_bytes / max(1, ahead.migrated_in_bytes),
        )


def run_one(path: Path) -> list[Row]:
    """Of one trace, for a process of its own: a simulated device is made once."""
    return list(measure(path))


def table(rows: list[Row]) -> str:
    """All rows in Markdown."""
    lines = [
        "| trace | device / peak | device MiB | bound | "
        + " | ".join(POLICIES)
        + " | cost / bound | planned / bound | ahead / planned | before use |",
        "|---|---|---|---|" + "---|" * len(POLICIES) + "---|---|---|---|",
    ]
    for row in rows:
        cells = [row.trace, f"{row.fraction}", f"{row.limit // MIB}", f"{row.bound // MIB}"]
        cells += [f"{row.moved[policy] // MIB}" for policy in POLICIES]
        cells += [f"{row.moved[policy] / row.bound:.3f}" for policy in ("cost", "planned")]
        cells += [f"{row.ahead / row.moved['planned']:.3f}", f"{row.ahead_share:.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, help="put the table into this page, between its marks")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for done in pool.imap(run_one, arguments.traces):
            rows += done
            print(f"{done[0].trace}: done", file=sys.stderr)
    text = f"{table(rows)}\n\nMiB moved in a step, both ways; {date.today()}.\n"
    if arguments.output:
        page = arguments.output.read_text()
        begin, end = "<!-- eviction.py -->\n", "<!-- end -->"
        head, rest = page.split(begin)
        arguments.output.write_text(f"{head}{begin}{text}{end}{rest.split(end)[1]}")
    else:
        print(text)


if __name__ == "__main__":
    main()
