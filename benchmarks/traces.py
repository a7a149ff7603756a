"""How much device memory and how many driver calls eight real training steps take with memx.

    python benchmarks/traces.py TRACES... [--output docs/traces.md]

Two tables. At full size, touched but without contents: what memx reserves over what the program has live,
with all the memory it wants and with half of it, and the driver calls of the whole step. Scaled to 1/64 with
real contents on half of the memory: whether every byte was right. Everything but the seconds, which go to
standard error, is the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from memx.trace import Trace

SCALE = Fraction(1, 64)
SCALED_PAGE = 64 << 10
HOST_LIMIT = 1 << 30


def half_of_peak(trace: Trace) -> int:
    """A limit that is too small: half of the peak, or the largest operation if that is more."""
    summary = trace.summary()
    page = trace.page
    needed = max(summary.peak_live_bytes // 2, summary.largest_operation_bytes)
    return -(-needed // page) * page


def replay(path: Path, *options: str) -> dict[str, Any]:
    """One replay on a simulated device of its own, in its own process."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "memx", "replay", str(path), "--simulate", "--json", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{path.name} {' '.join(options)}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    if run.returncode == 2 or not run.stdout:
        raise SystemExit(run.stderr)
    result: dict[str, Any] = json.loads(run.stdout)["results"][0]
    return result


def full_size_rows(paths: list[Path]) -> Iterator[list[str]]:
    """Reserved memory and driver calls, without contents."""
    for path in paths:
        trace = Trace(path)
        peak = trace.peak_live_bytes()
        limit = half_of_peak(trace)
        host = str(2 * peak)
        for mode in ("--eager", "--lazy"):
            roomy = replay(path, "--no-verify", mode, "--device-limit", str(2 * peak), "--host-limit", host)
            tight = replay(path, "--no-verify", mode, "--device-limit", str(limit), "--host-limit", host)
            yield [
                trace.name,
                mode[2:],
                f"{peak / 2**20:.0f}",
                f"{roomy['peak_reserved_bytes'] / peak:.4f}",
                str(sum(roomy["driver_calls"].values())),
                f"{limit / 2**20:.0f}",
                outcome(tight),
                f"{tight['peak_reserved_bytes'] / 2**20:.0f}",
                f"{tight['peak_host_bytes'] / 2**20:.0f}",
                f"{tight['migrated_in_bytes'] / 2**20:.0f}",
                f"{tight['migrated_out_bytes'] / 2**20:.0f}",
                str(sum(tight["driver_calls"].values())),
            ]


def scaled_rows(paths: list[Path]) -> Iterator[list[str]]:
    """Verified contents on half of the memory."""
    for path in paths:
        trace = Trace(path, SCALED_PAGE, SCALE)
        limit = half_of_peak(trace)
        for mode in ("--eager", "--lazy"):
            result = replay(
                path, "--scale", str(SCALE), "--page", str(SCALED_PAGE), mode,
                "--device-limit", str(limit), "--host-limit", str(HOST_LIMIT),
            )  # fmt: skip
            yield [
                trace.name,
                mode[2:],
                f"{trace.peak_live_bytes() / 2**20:.1f}",
                f"{limit / 2**20:.1f}",
                f"{result['peak_reserved_bytes'] / 2**20:.1f}",
                outcome(result),
                str(result["mismatches"]),
                str(result["races"]),
                f"{result['migrated_in_bytes'] / 2**20:.1f}",
                f"{result['migrated_out_bytes'] / 2**20:.1f}",
            ]


def outcome(result: dict[str, Any]) -> str:
    """Finished, or where it was not."""
    return "finished" if result["ok"] else f"event {result['failed_event']}: {result['error']}"


def table(header: list[str], rows: Iterator[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


PAGE = """# Real training steps on memx

Eight training steps recorded from PyTorch (shapes, lifetimes and order are real), replayed on the simulated
device by `benchmarks/traces.py`. Sizes are in MiB.

## At full size

Memory is touched and has no contents. With room: on a device of twice the peak. Half: on a device with half
of the peak, or with the largest operation's bytes if those are more.

{full}

## With contents

Every size at 1/64 with pages of 64 KiB, 1 GiB of host memory, half of the device memory that the step needs;
every kernel checks what it reads and stamps what it writes.

{scaled}
"""


def main() -> None:
    """Run all traces and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("docs/traces.md"))
    arguments = parser.parse_args()
    paths = sorted(arguments.traces)
    scaled = table(
        ["trace", "mode", "peak live", "limit", "peak reserved", "", "wrong bytes", "races", "in", "out"],
        scaled_rows(paths),
    )
    full = table(
        [
            "trace", "mode", "peak live", "with room: reserved / live", "calls", "half: limit", "",
            "reserved", "host", "in", "out", "calls",
        ],
        full_size_rows(paths),
    )  # fmt: skip
    arguments.output.write_text(PAGE.format(full=full, scaled=scaled))
    print(arguments.output.read_text())


if __name__ == "__main__":
    main()
