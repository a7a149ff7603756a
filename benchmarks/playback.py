"""What playing a plan back costs and saves, beside the pool alone, in one run on the simulated device.

    python benchmarks/playback.py TRACES... [--output docs/playback.md]

Memory: each trace replayed with its plan and without, touched and without contents. Time: the allocations and frees of
each trace, called in their order with nothing between them, with the plan and with the pool; the median of the rounds,
bindings included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from pathlib import Path

from memx import _native
from memx.plan import SavedLayout, layout, read_buffers
from memx.plan.playback import play
from memx.replay import Limits, prepare_device, replay
from memx.trace import Trace
from memx.trace import events as ev

MIB = 1 << 20
PAGE = 2 * MIB
ROUNDS = 9
SLACK = 1 << 30


def plan_for(path: Path) -> tuple[SavedLayout, float]:
    """A trace's plan, and the seconds that it took to compute."""
    buffers, source = read_buffers(path)
    found = layout(buffers)
    return SavedLayout(buffers, found.offsets, found.height, None, source.sha256, source.order), found.seconds


def cost(path: Path, limits: Limits, plan: SavedLayout | None) -> list[float]:
    """Microseconds of an allocation with its free, one figure a round after the first."""
    native = _native.Resource(0, limits.device_limit, 0, page=PAGE, framework=True)
    playing = play(native, plan) if plan else None
    events = [event for event in Trace(path) if isinstance(event, ev.Alloc | ev.Free)]
    count = sum(isinstance(event, ev.Alloc) for event in events)
    out = []
    for _ in range(ROUNDS + 1):
        addresses: dict[ev.Id, int] = {}
        if playing:
            playing.step(0)
        start = time.perf_counter()
        for event in events:
            if isinstance(event, ev.Alloc):
                addresses[event.id] = native.allocate(event.size, 0)
            else:
                native.free(addresses.pop(event.id), None)
        out.append((time.perf_counter() - start) * 1e6 / count)
        for address in addresses.values():
            native.free(address)
    if playing:
        found = playing.statistics()
        assert found["departed"] == found["blocked"] == 0, found
    native.close()
    return out[1:]


def measure(path: Path) -> list[str]:
    """One row; in a process of its own."""
    plan, seconds = plan_for(path)
    trace = Trace(path)
    limits = Limits(2 * trace.peak_live_bytes() + SLACK, 0, PAGE, "default", False)
    prepare_device(limits, simulate=True, contents=False)
    pool = replay(trace, limits, verify=False, framework=True)
    planned = replay(trace, limits, verify=False, framework=True, plan=plan)
    assert planned.plan is not None
    with_plan, without = cost(path, limits, plan), cost(path, limits, None)
    return [
        trace.name,
        f"{trace.peak_live_bytes() / MIB:.1f}",
        f"{plan.height / MIB:.1f}",
        f"{1000 * seconds:.0f}",
        f"{planned.peak_reserved_bytes / MIB:.0f}",
        f"{pool.peak_reserved_bytes / MIB:.0f}",
        f"{planned.plan['served']} / {planned.plan['departed']} / {planned.plan['blocked']}",
        f"{sum(planned.driver_calls.values())} / {sum(pool.driver_calls.values())}",
        f"{statistics.median(with_plan):.2f}",
        f"{statistics.median(without):.2f}",
    ]


PAGE_TEXT = """# Playing a plan back

A training step asks for the same memory every time. Record it, lay it out once, and play the layout back:

```
memx plan step.jsonl.gz -o plan.json
memx replay step.jsonl.gz --plan plan.json
```

```python
playing = memx.plan.use(mr, "plan.json")  # or several, one for each sequence length
for batch in loader:
    playing.step()
    train(batch)
print(playing.statistics())  # {{"served": ..., "departed": ..., "blocked": ..., "arena_bytes": ...}}
```

memx keeps an arena of device memory as large as the layout is high, and recognises the program by the order of its
allocations: the k-th of a step goes to the k-th buffer's place, if its size and stream are the plan's. The plan is
checked, not trusted: a place is given only if everything that was there is freed, and ordered before the allocation's
stream by [the pool's rules](reuse.md). What is not in the plan there (*departed*), or finds its place taken
(*blocked*), the pool serves as if there were no plan; an operation that is left out costs itself alone. What a plan
placed does not move: `evict` and `pause` refuse it. Below PyTorch: `memx.plan.use(memx.torch.resource(), "plan.json")`.

## Measured

Made by `benchmarks/playback.py` on the simulated device, sizes in MiB. *Planned* is the layout's height, *plan ms* the
time that it took to compute. *Reserved* is the peak of device memory held, with the plan and with the pool alone.
*Allocations* were served at their places / departed / were blocked. *Driver calls* are those of the whole run, with
the plan / with the pool. *us* is an allocation and its free, Python's call included, both in one run on a machine that
was busy otherwise: compare them with each other only.

{table}
"""


def main() -> None:
    """Run all traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    head = ["trace", "live", "planned", "plan ms", "reserved: plan", "pool", "allocations", "driver calls"]
    head += ["us: plan", "pool"]
    rows = [head, ["---"] * len(head)]
    for path in sorted(arguments.traces):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (path,)))
    text = PAGE_TEXT.format(table="\n".join("| " + " | ".join(row) + " |" for row in rows))
    if arguments.output:
        arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
