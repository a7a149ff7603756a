"""How much device memory and how many driver calls eight real training steps take with memx.

    python benchmarks/traces.py TRACES... [--output docs/traces.md]

At full size, touched but without contents: what memx reserves over what the program has live, with all the
memory it wants and with half of it, and the driver calls of the whole step. Scaled to 1/64 with real contents
on half of the memory: whether every byte was right. The host waits after every kernel, so that every number
is the same on every run; how long each took goes to standard error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

from memx.replay import Limits, Result, prepare_device, replay
from memx.trace import Trace
from memx.trace import events as ev

SCALE = Fraction(1, 64)
SCALED_PAGE = 64 << 10
SCALED_HOST_LIMIT = 1 << 30
MIB = 1 << 20


def half_of_peak(trace: Trace) -> int:
    """A limit that is too small: half of the peak, or the largest operation if that is more."""
    summary = trace.summary()
    needed = max(summary.peak_live_bytes // 2, summary.largest_operation_bytes)
    return -(-needed // trace.page) * trace.page


def waiting(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The events, with a host wait after every kernel."""
    for event in events:
        yield event
        if isinstance(event, ev.Kernel):
            yield ev.Sync()


def run(path: Path, limits: Limits, scaled: bool) -> Result:
    """One replay on a simulated device; in a process of its own."""
    trace = Trace(path, SCALED_PAGE, SCALE) if scaled else Trace(path)
    prepare_device(limits, simulate=True, contents=scaled)
    return replay(waiting(trace), limits, verify=scaled)


def measure(trace: Trace, device_limit: int, host_limit: int, lazy: bool, scaled: bool = False) -> Result:
    """Run a replay in a fresh process, and say how long it took."""
    start = time.perf_counter()
    limits = Limits(device_limit, host_limit, trace.page, "default", lazy)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(run, (Path(trace.path), limits, scaled))
    mode = "lazy" if lazy else "eager"
    seconds = time.perf_counter() - start
    print(f"{trace.name} {mode} in {device_limit // MIB} MiB: {seconds:.1f} s", file=sys.stderr)
    return result


def outcome(result: Result) -> str:
    """Finished, or where it was not."""
    return "yes" if result.ok else f"no: event {result.failed_event}: {result.error}"


def mib(nbytes: int) -> str:
    """Whole MiB, or tenths of a few."""
    return f"{nbytes / MIB:.0f}" if nbytes >= 100 * MIB else f"{nbytes / MIB:.1f}"


def full_size_rows(paths: list[Path]) -> Iterator[list[str]]:
    """Reserved memory and driver calls, without contents."""
    for path in paths:
        trace = Trace(path)
        peak = trace.peak_live_bytes()
        limit = half_of_peak(trace)
        for lazy in (False, True):
            roomy = measure(trace, 2 * peak, 2 * peak, lazy)
            tight = measure(trace, limit, 2 * peak, lazy)
            yield [
                trace.name,
                "lazy" if lazy else "eager",
                mib(peak),
                f"{roomy.peak_reserved_bytes / peak:.4f}",
                str(sum(roomy.driver_calls.values())),
                mib(limit),
                outcome(tight),
                mib(tight.peak_reserved_bytes),
                mib(tight.peak_host_bytes),
                mib(tight.migrated_in_bytes),
                mib(tight.migrated_out_bytes),
                str(sum(tight.driver_calls.values())),
            ]


def scaled_rows(paths: list[Path]) -> Iterator[list[str]]:
    """Verified contents on half of the memory."""
    for path in paths:
        trace = Trace(path, SCALED_PAGE, SCALE)
        limit = half_of_peak(trace)
        for lazy in (False, True):
            result = measure(trace, limit, SCALED_HOST_LIMIT, lazy, scaled=True)
            yield [
                trace.name,
                "lazy" if lazy else "eager",
                mib(trace.peak_live_bytes()),
                mib(limit),
                outcome(result),
                mib(result.peak_reserved_bytes),
                mib(result.peak_host_bytes),
                mib(result.migrated_in_bytes),
                mib(result.migrated_out_bytes),
                str(result.mismatches),
                str(result.races),
            ]


def table(header: str, rows: Iterable[list[str]]) -> str:
    """Markdown."""
    names = header.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


PAGE = """# Real training steps on memx

Training steps recorded from PyTorch (shapes, lifetimes and order are real), replayed on the simulated device
by `benchmarks/traces.py`. Sizes are in MiB. The host waits after every kernel, so that the numbers do not
depend on timing; a program that does not wait adds event queries.

## At full size

Memory is touched and has no contents. *With room*: the device has twice the peak. *Half*: it has half of the
peak, or the largest operation's bytes if those are more. *In* and *out* are the bytes moved between host and
device; an eager buffer never moves, it is born in host memory where the device is full.

{full}

## With contents

Every size is at 1/64, with pages of 64 KiB, 1 GiB of host memory and half of the device memory. Every kernel
checks what it reads and stamps what it writes.

{scaled}
"""


def main() -> None:
    """Run all traces and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("docs/traces.md"))
    arguments = parser.parse_args()
    paths = sorted(arguments.traces)
    scaled = table(
        "trace, mode, peak live, device limit, finished, reserved, host, in, out, wrong bytes, races",
        scaled_rows(paths),
    )
    full = table(
        "trace, mode, peak live, with room: reserved / live, driver calls, half: device limit, finished, "
        "reserved, host, in, out, driver calls",
        full_size_rows(paths),
    )
    arguments.output.write_text(PAGE.format(full=full, scaled=scaled))
    print(arguments.output.read_text())


if __name__ == "__main__":
    main()
