"""Many millions of events on three times the device's memory: what grows?

    python benchmarks/soak.py [--events 10000000]

Allocations, uses, frees, moves and trims at random on a lazy resource of the simulated device, without contents. Every
tenth of the way: the process's resident memory, the driver's handles, mappings and events, and host memory.
"""

from __future__ import annotations

import argparse
import random
import resource as process
import sys
import time
from pathlib import Path

import memx
from memx import _native

PAGE = 64 << 10
DEVICE = 256
BUFFERS = 400


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * process.getpagesize()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    memx.simulate(memory=2 * DEVICE * PAGE, host_memory=32 * DEVICE * PAGE, page=PAGE, accounting_only=True)
    r = _native.Resource(0, DEVICE * PAGE, 8 * DEVICE * PAGE, lazy=True, page=PAGE)
    rng = random.Random(arguments.seed)
    live: list[tuple[int, int]] = []
    titles = ("events", "resident MiB", "handles", "mappings", "pinned MiB", "moved GiB", "s")
    print(" ".join(f"{title:>{width}}" for title, width in zip(titles, (12, 13, 8, 9, 11, 10, 6), strict=True)))
    start = time.perf_counter()
    report = max(1, arguments.events // 10)
    for event in range(1, arguments.events + 1):
        action = rng.random()
        if len(live) < BUFFERS and (not live or action < 0.25):
            size = rng.randint(1, 4 * PAGE)
            live.append((r.allocate(size), size))
        elif action < 0.5:
            address, _ = live.pop(rng.randrange(len(live)))
            r.free(address)
        elif action < 0.999:
            address, size = live[min(rng.randrange(len(live)), rng.randrange(len(live)))]
            r.end_use(r.begin_use([(address, 0, size, rng.choice((1, 2, 3)))], 0))
        elif action < 0.9998:
            r.evict(live[rng.randrange(len(live))][0])
        else:
            r.trim(DEVICE * PAGE // 2)
        if event % report == 0:
            usage, s = memx.sim.usage(), r.statistics()
            moved = (s["migrated_in_bytes"] + s["migrated_out_bytes"]) / (1 << 30)
            print(
                f"{event:>12,} {resident_bytes() / (1 << 20):>13.1f} {usage['handles']:>8} {usage['mappings']:>9}"
                f" {usage['pinned_bytes'] / (1 << 20):>11.1f} {moved:>10.1f} {time.perf_counter() - start:>6.0f}"
            )
            sys.stdout.flush()
            r.check()
    r.close()


if __name__ == "__main__":
    main()
