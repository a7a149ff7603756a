"""What recording costs a program: torch.empty and the tensor's free, recorded and not, in one process.

    python benchmarks/record.py

The process is one that `memx record` started on the simulated device, so memx is below PyTorch, a thread sends the
events and another process writes them. Blocks with the allocator's event log on and off take turns, so that whatever
else the machine does meets both; the medians over blocks are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, sys, time
import torch
import memx
torch.empty(1, device="cuda")
native = memx.torch.resource().native
def block(nbytes, count=2000):
    empty, kind = torch.empty, torch.uint8
    start = time.perf_counter_ns()
    for _ in range(count):
        empty(nbytes, dtype=kind, device="cuda")
    return (time.perf_counter_ns() - start) / count
out = {}
for nbytes in (512, 1 << 20, 64 << 20):
    block(nbytes)
    times = {True: [], False: []}
    for number in range(300):
        on = number % 2 == 0
        native.record_events(on)
        times[on].append(block(nbytes))
        time.sleep(0.002)
    out[nbytes] = times
json.dump({size: {str(on): values for on, values in times.items()} for size, times in out.items()}, sys.stderr)
"""


def measure() -> dict[int, tuple[float, float]]:
    """Median nanoseconds without and with recording, by size."""
    with tempfile.TemporaryDirectory() as folder:
        trace = str(Path(folder) / "t.jsonl.gz")
        command = [sys.executable, "-m", "memx", "record", "--simulate", "--quiet", "-o", trace, "--"]
        done = subprocess.run([*command, sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stderr.splitlines()[-1])
    middle = statistics.median
    return {int(size): (middle(times["False"]), middle(times["True"])) for size, times in found.items()}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    print("| bytes | not recorded, ns | recorded, ns | more |\n| --- | --- | --- | --- |")
    for size, (off, on) in measure().items():
        print(f"| {size} | {off:.0f} | {on:.0f} | {on / off - 1:+.1%} |")


if __name__ == "__main__":
    main()
