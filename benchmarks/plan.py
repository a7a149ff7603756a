"""How low does memx lay buffers out, and how fast, beside first fit and CP-SAT?

    python benchmarks/plan.py [--time-limit 10] [--patience 10] [--seeds 3] [--problems 5] [--cpsat] [--data DIR]
                              [--count 1000000] [traces|public|cut|large ...]

- ``traces``: training steps of real models; nothing fits the device better than their live peak.
- ``public``: minimalloc's eleven hard problems, each into 1048576 bytes.
- ``cut``: rectangles cut up at random, to be put together again: no slack at all. Their seeds are used nowhere else,
  neither to tune the planner nor to test it.
- ``large``: random buffers by the million.

The first two are read from DIR, by default ``../shared/data`` beside the checkout. Heights are relative to the most
bytes alive at once. With ``--cpsat`` OR-Tools' two-dimensional no-overlap constraint gets the same time on one
thread.

In ``public`` and ``cut`` seconds are those of the processor, so that what else a machine does does not count: solved is
what took no more of them than the limit, and by the clock everybody may take ``--patience`` times that. Elsewhere they
are wall time where not said to be of the processor.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from machine import machine
from rich.console import Console
from rich.table import Table

from memx.plan import Buffers, Layout, check_layout, layout, read_buffers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "plan"))
problems: Any = importlib.import_module("plan_problems")

CAPACITY = 1 << 20
CUT_COUNTS = (100, 150, 200, 300, 500, 1000)
CUT_HEIGHT = 1000
CUT_SEEDS_FROM = 10_000


def first_fit(buffers: Buffers) -> float:
    """Height over load of what an allocator without a plan does: lowest free offset, in order of arrival."""
    order = np.lexsort((np.arange(len(buffers)), buffers.lower))
    placed: list[int] = []
    offsets = np.zeros(len(buffers), np.int64)
    for i in order:
        placed = [j for j in placed if buffers.upper[j] > buffers.lower[i]]
        offset = 0
        for j in sorted(placed, key=lambda j: offsets[j]):
            if offset + buffers.size[i] <= offsets[j]:
                break
            offset = max(offset, -(-(offsets[j] + buffers.size[j]) // buffers.alignment[i]) * buffers.alignment[i])
        offsets[i] = offset
        placed.append(i)
    check_layout(buffers, offsets)
    return float((offsets + buffers.size).max() / buffers.max_load())


def processor_seconds(fits: Callable[[float], bool], arguments: argparse.Namespace) -> float:
    """What an attempt took that gets so many seconds by the clock; infinite if it found nothing in its time."""
    before = time.process_time()
    found = fits(arguments.time_limit * arguments.patience)
    took = time.process_time() - before
    return took if found and took <= arguments.time_limit else float("inf")


def memx_seconds(buffers: Buffers, capacity: int, arguments: argparse.Namespace, **how: Any) -> float:
    return processor_seconds(lambda limit: bool(layout(buffers, capacity, limit, **how).fits), arguments)


def cpsat_seconds(buffers: Buffers, capacity: int, arguments: argparse.Namespace) -> float:
    return processor_seconds(lambda limit: cpsat(buffers, capacity, limit), arguments)


def cpsat(buffers: Buffers, capacity: int, seconds: float) -> bool:
    """Whether CP-SAT fits the buffers into a capacity in time."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    unit = int(np.gcd.reduce(buffers.size))
    times, spaces = [], []
    for b in buffers:
        size = b.size // unit
        offset = model.new_int_var(0, capacity // unit - size, "")
        spaces.append(model.new_fixed_size_interval_var(offset, size, ""))
        times.append(model.new_fixed_size_interval_var(b.lower, b.upper - b.lower, ""))
    model.add_no_overlap_2d(times, spaces)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return status in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def shown(seconds: float) -> str:
    return "no" if seconds == float("inf") else f"{seconds:.2f} s"


def solved(seconds: list[float]) -> str:
    """How many, and when half of those were done."""
    done = [one for one in seconds if one < float("inf")]
    return f"{len(done)}/{len(seconds)}" + (f", {median(done):.2f} s" if done else "")


def ratio(result: Layout) -> str:
    proof = " optimal" if result.optimal else ""
    return f"{result.height / result.lower_bound:.4f}{proof}"


def traces(arguments: argparse.Namespace, table: Table) -> None:
    for column in ("trace", "buffers", "first fit by arrival", "memx greedy", "s", "memx auto", "s"):
        table.add_column(column)
    for path in sorted((arguments.data / "traces").glob("*.jsonl.gz")):
        buffers, _ = read_buffers(path)
        greedy = layout(buffers, method="greedy")
        auto = layout(buffers, time_limit=arguments.time_limit)
        name = path.name.split(".")[0]
        table.add_row(
            name,
            str(len(buffers)),
            f"{first_fit(buffers):.4f}",
            ratio(greedy),
            f"{greedy.seconds:.3f}",
            ratio(auto),
            f"{auto.seconds:.3f}",
        )


def public(arguments: argparse.Namespace, table: Table) -> None:
    columns = ["problem", "buffers", "greedy", "genetic", "auto: seeds, median", "worst"]
    for column in columns + (["CP-SAT"] if arguments.cpsat else []):
        table.add_column(column)
    for path in sorted((arguments.data / "minimalloc").glob(f"?.{CAPACITY}.csv")):
        buffers, capacity = read_buffers(path)[0], CAPACITY
        greedy = layout(buffers, method="greedy")
        genetic = memx_seconds(buffers, capacity, arguments, method="genetic")
        runs = [memx_seconds(buffers, capacity, arguments, seed=seed) for seed in range(arguments.seeds)]
        row = [path.name[0], str(len(buffers)), ratio(greedy), shown(genetic), solved(runs), shown(max(runs))]
        table.add_row(*row, *([shown(cpsat_seconds(buffers, capacity, arguments))] if arguments.cpsat else []))


def cut(arguments: argparse.Namespace, table: Table) -> None:
    for column in ["pieces", "greedy, mean", "memx auto", *(["CP-SAT"] if arguments.cpsat else [])]:
        table.add_column(column)
    for count in CUT_COUNTS:
        seeds = range(CUT_SEEDS_FROM, CUT_SEEDS_FROM + arguments.problems)
        heights, ours, others = [], [], []
        for seed in seeds:
            buffers = Buffers.of(problems.perfect_packing(random.Random(seed), count, height=CUT_HEIGHT))
            heights.append(layout(buffers, method="greedy").height / CUT_HEIGHT)
            ours.append(memx_seconds(buffers, CUT_HEIGHT, arguments))
            if arguments.cpsat:
                others.append(cpsat_seconds(buffers, CUT_HEIGHT, arguments))
        row = [str(count), f"{sum(heights) / len(heights):.3f}", solved(ours)]
        table.add_row(*row, *([solved(others)] if arguments.cpsat else []))


def large(arguments: argparse.Namespace, table: Table) -> None:
    for column in ("lifetimes", "buffers", "memx greedy", "method", "s", "s of the processor, all told"):
        table.add_column(column)
    rng = np.random.default_rng(0)
    for count in (n for n in (10_000, 100_000, 1_000_000) if n <= arguments.count):
        lower = np.sort(rng.integers(0, 2 * count, count))
        size = rng.integers(1, 1 << 20, count) * 512
        other = rng.integers(0, 2 * count, count)
        lifetimes: dict[str, Callable[[], tuple[Any, Any]]] = {
            "up to 100": lambda: (lower, lower + rng.integers(1, 100, count)),  # noqa: B023
            "exponential, mean 1000": lambda: (lower, lower + 1 + rng.exponential(1000, count).astype(int)),  # noqa: B023
            "between any two": lambda: (np.minimum(lower, other), np.maximum(lower, other) + 1),  # noqa: B023
        }
        for name, make in lifetimes.items():
            low, high = make()
            before = time.process_time()
            buffers = Buffers(range(count), low, high, size)
            result = layout(buffers, time_limit=arguments.time_limit, method="greedy")
            processor = time.process_time() - before
            row = [name, f"{count:,}", ratio(result), result.method, f"{result.seconds:.2f}", f"{processor:.2f}"]
            table.add_row(*row)


def main() -> None:
    parts = {"traces": traces, "public": public, "cut": cut, "large": large}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", type=int, default=5, help="of each count of pieces")
    parser.add_argument("--cpsat", action="store_true")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    console = Console(width=110)
    console.print(machine())
    for name in arguments.parts or parts:
        table = Table(title=name)
        parts[name](arguments, table)
        if table.row_count:
            console.print(table)
        else:
            console.print(f"{name}: nothing in {arguments.data}")


if __name__ == "__main__":
    main()
