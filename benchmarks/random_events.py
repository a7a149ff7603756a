"""Millions of random events: does memx keep its promises in every reuse mode, eager and lazy?

    python benchmarks/random_events.py [--events 200000] [--seed 0] [--length 1500]

Random programs that keep the rules of a correct one (streams of every kind, several host threads, recorded streams,
waits, held streams, tags that are paused, captures, injected failures, trims, rebalances), each replayed on the
simulated device with its contents verified. Counts races, wrong bytes, unmet expectations (a request that had to
succeed did not), limits passed, and what is left of memx in the driver afterwards. The first program that fails is
shrunk to a small one and written as a trace.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

import memx
from memx.errors import MemxError
from memx.replay import Limits, Result, replay
from memx.trace import Header, write
from memx.trace import events as ev

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
programs: Any = importlib.import_module("integration.programs")
rules: Any = importlib.import_module("integration.rules")

PAGE = 64 << 10
ATTEMPTS = 3  # what depends on timing may need more than one


def faults(events: list[ev.Event], limits: Limits) -> tuple[list[str], Result | None]:
    """What one replay did wrong, in words."""
    before = memx.sim.usage()
    try:
        result = replay(events, limits)
    except MemxError as error:
        return [f"the replay ended: {error}"], None
    found = list(result.failures)
    if result.races:
        found.append(f"{result.races} races, the first {memx.sim.races()[0]}")
    if result.mismatches:
        found.append(f"{result.mismatches} wrong bytes")
    if result.peak_host_bytes > limits.host_limit:
        found.append(f"{result.peak_host_bytes} bytes of host memory with a limit of {limits.host_limit}")
    after = memx.sim.usage()
    if after != before:
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        found.append(f"left behind (before, after): {changed}")
    return found, result


def keeps_rules(events: list[ev.Event]) -> bool:
    """Whether a correct program could do this."""
    try:
        for _ in rules.check(events):
            pass
    except (rules.RuleError, KeyError):
        return False
    return True


def without_buffer(events: list[ev.Event], at: int) -> list[ev.Event]:
    """The events without an allocation and all that names it."""
    first = events[at]
    assert isinstance(first, ev.Alloc)
    left = events[:at]
    for i, event in enumerate(events[at + 1 :], at + 1):
        if isinstance(event, ev.Alloc) and event.id == first.id:
            return left + events[i:]
        if isinstance(event, ev.Kernel):
            reads, writes = (
                tuple(operand for operand in operands if operand.id != first.id)
                for operands in (event.reads, event.writes)
            )
            if reads or writes:
                left.append(replace(event, reads=reads, writes=writes))
        elif getattr(event, "id", None) != first.id:
            left.append(event)
    return left


def shrink(events: list[ev.Event], fails: Callable[[list[ev.Event]], bool]) -> list[ev.Event]:
    """Fewer events that keep the rules and still fail."""
    before = len(events) + 1
    while len(events) < before:
        before = len(events)
        for at in range(len(events) - 1, -1, -1):
            if at < len(events) and isinstance(events[at], ev.Alloc):
                fewer = without_buffer(events, at)
                if keeps_rules(fewer) and fails(fewer):
                    events = fewer
        step = len(events) // 2
        while step:
            at = 0
            while at < len(events):
                fewer = events[:at] + events[at + step :]
                if keeps_rules(fewer) and fails(fewer):
                    events = fewer
                else:
                    at += step
            step //= 2
    return events


def shrink_and_write(events: list[ev.Event], limits: Limits, path: Path) -> None:
    """Write the smallest failing program that can be found."""

    def fails(some: list[ev.Event]) -> bool:
        return any(faults(some, limits)[0] for _ in range(ATTEMPTS))

    small = shrink(events, fails)
    header = Header(path.stem, limits.page, limits.device_limit, limits.host_limit, limits.reuse, limits.lazy)
    write(path, header, small)
    print(f"{len(small)} events that fail: {path}\n" + path.read_text())


def main() -> int:
    """Run until enough events have passed, or one program fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=1500, help="events of one program")
    parser.add_argument("--output", type=Path, default=Path("random-events-failure.jsonl"))
    arguments = parser.parse_args()
    memx.simulate(memory="64MiB", host_memory="256MiB", page=PAGE, seed=arguments.seed)
    memx.MemoryResource(0, device_limit=PAGE, host_limit=0).native.close()  # the context, once and for all
    done, seed, start = 0, arguments.seed, time.perf_counter()
    modes: Counter[str] = Counter()
    moved = 0
    with Progress(transient=True) as progress:
        task = progress.add_task("events", total=arguments.events)
        while done < arguments.events:
            plan = programs.setting(seed, PAGE)
            events = programs.generate(plan, arguments.length)
            found, result = faults(events, plan.limits)
            if found or result is None:
                progress.stop()
                print(f"seed {seed}, {plan}:\n  " + "\n  ".join(found))
                shrink_and_write(events, plan.limits, arguments.output)
                return 1
            done += len(events)
            seed += 1
            modes[f"{plan.limits.reuse} {'lazy' if plan.limits.lazy else 'eager'}"] += len(events)
            moved += result.migrated_in_bytes + result.migrated_out_bytes
            progress.update(task, completed=done)
    seconds = time.perf_counter() - start
    print(f"{done} events in {seed - arguments.seed} programs, {seconds:.0f} s: no race, no wrong byte, every")
    print(f"expectation met, every limit held, nothing left behind; {moved >> 20} MiB moved between tiers")
    for mode, count in sorted(modes.items()):
        print(f"  {mode:14} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
