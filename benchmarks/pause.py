"""Driver calls to pause and resume many buffers, beside one handle an allocation.

    python benchmarks/pause.py [--buffers 1000]

Buffers of 1 to 64 pages, on the simulated device. One handle an allocation takes four calls to pause one (host memory,
a copy, cuMemUnmap, cuMemRelease) and four to resume it (cuMemCreate, cuMemMap, cuMemSetAccess, a copy); two and three
where its contents are not kept.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

import memx

PAGE = 64 << 10


def calls(mr: memx.MemoryResource, before: Counter[str]) -> Counter[str]:
    """The driver calls since then, but for those that look at streams and events."""
    now = Counter(mr.statistics()["driver_calls"])
    return Counter({name: n for name, n in (now - before).items() if name.startswith("cuMem")})


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffers", type=int, default=1000)
    count = parser.parse_args().buffers
    rng = random.Random(0)
    sizes = [rng.randint(1, 64) * PAGE for _ in range(count)]
    memx.simulate(memory=2 * sum(sizes), host_memory=3 * sum(sizes), page=PAGE, accounting_only=True)
    mr = memx.MemoryResource(0, device_limit=2 * sum(sizes), host_limit=2 * sum(sizes), page=PAGE)
    with mr.tag("weights"):
        buffers = [mr.allocate(n) for n in sizes]
    print(f"{count} buffers, {sum(sizes) // PAGE} pages, tagged 'weights'")
    for title, keep, theirs in (
        ("keeping contents", True, (4, 4)),
        ("keeping contents, again", True, (4, 4)),
        ("without contents", False, (2, 3)),
    ):
        total = Counter(mr.statistics()["driver_calls"])
        mr.pause("weights", keep=keep)
        paused = calls(mr, total)
        total = Counter(mr.statistics()["driver_calls"])
        mr.resume("weights")
        resumed = calls(mr, total)
        for what, made, each in (("pause", paused, theirs[0]), ("resume", resumed, theirs[1])):
            parts = ", ".join(f"{name} {n}" for name, n in sorted(made.items()))
            print(f"{what}, {title}: {sum(made.values())} calls ({parts}); one handle an allocation: {each * count}")
    # Pages of one tag to another: nothing is created or released.
    mr.pause("weights", keep=False)
    total = Counter(mr.statistics()["driver_calls"])
    with mr.tag("cache"):
        more = [mr.allocate(n) for n in sizes]
    made = calls(mr, total)
    parts = ", ".join(f"{name} {n}" for name, n in sorted(made.items()))
    print(f"paused pages to another tag's buffers: {sum(made.values())} calls ({parts})")
    for buffer in buffers + more:
        buffer.close()


if __name__ == "__main__":
    main()
