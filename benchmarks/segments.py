"""What does each part of planning over segments add, and how far from the bound is it?

    python benchmarks/segments.py [--time-limit 10] [--seeds 20] [--scale 1/64] [--data DIR] [--plot FILE]
                                  [small|traces|time|replay ...]

- ``small``: thirteen problems whose optima are proven; means over seeds.
- ``traces``: training steps of real models at 0.8, 0.6 and 0.4 of their peak, or at their largest operation if more.
- ``time``: bytes moved after ever longer time limits, drawn with ``--plot``.
- ``replay``: schedules run on the simulated device, contents verified: bytes claimed and bytes moved.

Random is the genetic algorithm's first generation; GA is the algorithm alone, greedy the best of two
assignments made one object after the other. The tables are in Markdown, bytes of traces in MiB.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from machine import machine

from memx.plan import Migration, SegmentPlan, read_migration, segments
from memx.plan.inputs import Source
from memx.plan.migration import islands as isles
from memx.plan.migration.bound import relax
from memx.plan.migration.files import write_schedule
from memx.plan.migration.islands import Effort, Task, Threads, evolve_all, greedy
from memx.plan.migration.solve import largest_segments
from memx.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "tests" / "plan" / "data" / "migration"
FRACTIONS = (0.8, 0.6, 0.4)
MODES = ("exclusive", "packed")
ALONE = Effort(local=False, generations=50, patience=8, most=1000)
LIMITS = (0.5, 1.0, 2.0, 5.0, 10.0)


class Parts:
    """What each part of the search finds by itself on one problem."""

    def __init__(self, problem: Migration, capacity: int, mode: str, seed: int, seconds: float) -> None:
        self.problem, self.seed, self.seconds = problem, seed, seconds
        sizes = largest_segments(problem, capacity)
        self.task = Task(sizes, mode == "exclusive", relax(problem, capacity).lower_bound)

    def random(self) -> tuple[int | None, int | None]:
        """The first generation of all islands: its mean, of those that serve every step, and its best."""
        count = ALONE.islands * ALONE.population
        first = isles.found(self.problem, self.task, count, self.seed, None, self.seconds)
        serving = first.moved[first.excess == 0]
        return (int(serving.mean()), int(serving.min())) if len(serving) else (None, None)

    def genetic(self) -> int | None:
        """The genetic algorithm alone."""
        deadline = time.perf_counter() + self.seconds
        return _moved(evolve_all(self.problem, self.task, ALONE, self.seed, deadline, Threads())[0])

    def greedy(self) -> int | None:
        """The best of the greedy assignments."""
        found = [
            _moved(greedy(self.problem, self.task, *kind, self.seconds)) for kind in isles.GREEDY[self.task.exclusive]
        ]
        return min((moved for moved in found if moved is not None), default=None)


def _moved(island: isles.Island) -> int | None:
    excess, moved = island.cost
    return None if excess else moved


def small(arguments: argparse.Namespace) -> None:
    """Means over seeds; the optimum is proven by enumeration."""
    print("| problem | mode | random: mean | best | greedy | GA | GA + local search | found | optimum | bound |")
    print("| --- " * 10 + "|")
    slowest = 0.0
    for path in sorted(SMALL.glob("*.json")):
        known = json.loads(path.read_text())
        problem = read_migration(Trace(path.with_suffix(".jsonl")))
        for mode in MODES:
            optimum = known["optimum"][mode]
            if optimum is None:
                continue
            columns: list[list[int]] = [[], [], [], [], []]
            for seed in range(arguments.seeds):
                parts = Parts(problem, known["capacity"], mode, seed, 5.0)
                plan = segments(problem, known["capacity"], 5.0, seed, mode=mode)
                slowest = max(slowest, plan.seconds)
                for column, moved in zip(
                    columns, (*parts.random(), parts.greedy(), parts.genetic(), plan.migrated_bytes), strict=True
                ):
                    if moved is not None:
                        column.append(moved)
            means = " | ".join(f"{statistics.mean(column):.1f}" if column else "none" for column in columns)
            hits = f"{columns[4].count(optimum['bytes'])}/{arguments.seeds}"
            print(
                f"| {known['name']} | {mode} | {means} | {hits} | {optimum['bytes']} "
                f"| {relax(problem, known['capacity']).lower_bound} |"
            )
    print(f"\nslowest plan: {slowest:.2f} s")


def traces_at(arguments: argparse.Namespace) -> Iterator[tuple[str, float, Migration, int]]:
    """Name, fraction, problem and capacity."""
    for path in sorted(arguments.data.glob("traces/*.jsonl.gz")):
        trace = Trace(path)
        problem = read_migration(trace)
        for fraction in FRACTIONS:
            least = int(problem.step_bytes.max())
            yield (
                path.name.split(".")[0],
                fraction,
                problem,
                max(least, int(fraction * trace.summary().peak_live_bytes)),
            )


def traces(arguments: argparse.Namespace) -> None:
    """One seed; every cell has the time limit for itself."""
    columns = "random: mean | best | greedy | GA | GA + local search"
    print(f"| trace | device/peak | bound | no segments | mode | N | {columns} |")
    print("| --- " * 11 + "|")
    for name, fraction, problem, capacity in traces_at(arguments):
        whole = segments(problem, capacity, arguments.time_limit, mode="unsegmented")
        for mode in MODES:
            plan = segments(problem, capacity, arguments.time_limit, mode=mode)
            row: Sequence[object]
            if plan.infeasible_step is not None:
                row = ("none: " + plan.reason, "", "", "", "")
            else:
                parts = Parts(problem, capacity, mode, 0, arguments.time_limit)
                row = [mib(moved) for moved in (*parts.random(), parts.greedy(), parts.genetic(), plan.migrated_bytes)]
            cells = " | ".join(map(str, row))
            print(
                f"| {name} | {fraction} | {mib(whole.lower_bound)} | {mib(whole.migrated_bytes)}{proven(whole)} "
                f"| {mode} | {len(plan.segments)} | {cells} |",
                flush=True,
            )


def mib(nbytes: int | None) -> str:
    """Rounded up, so that nothing looks better than it is."""
    return "none" if nbytes is None else f"{math.ceil(nbytes / 2**20)}"


def proven(plan: SegmentPlan) -> str:
    """A mark for plans that are proven the best."""
    return " *" if plan.optimal else ""


def over_time(arguments: argparse.Namespace) -> None:
    """Packed and exclusive plans of some traces under ever longer limits."""
    chosen = {("resnet50_b32_sgd", 0.6), ("gpt2s_b4_t512_adamw", 0.6), ("vit_b16_b16_adamw", 0.6)}
    curves: list[tuple[str, int, dict[str, list[int | None]]]] = []
    for name, fraction, problem, capacity in traces_at(arguments):
        if (name, fraction) not in chosen:
            continue
        bound = relax(problem, capacity).lower_bound
        found: dict[str, list[int | None]] = {}
        for mode in MODES:
            whole = [segments(problem, capacity, limit, mode=mode).migrated_bytes for limit in LIMITS]
            alone = [Parts(problem, capacity, mode, 0, limit).genetic() for limit in LIMITS]
            first = Parts(problem, capacity, mode, 0, LIMITS[-1])
            found |= {f"{mode}: GA + local search": whole, f"{mode}: GA": alone}
            found |= {f"{mode}: greedy": [first.greedy()] * len(LIMITS)}
            found |= {f"{mode}: random": [first.random()[1]] * len(LIMITS)}
        curves.append((f"{name} at {fraction}", bound, found))
        print(f"\n{name} at {fraction}, bound {mib(bound)}\n\n| seconds | {' | '.join(map(str, LIMITS))} |")
        print("| --- " * (len(LIMITS) + 1) + "|")
        for label, values in found.items():
            print(f"| {label} | {' | '.join(map(mib, values))} |", flush=True)
    if arguments.plot:
        draw(arguments.plot, curves)


def draw(path: Path, curves: list[tuple[str, int, dict[str, list[int | None]]]]) -> None:
    """Bytes moved over the bound, against the time limit."""
    from memx.report import new_figure, save_figure, style

    looks = {
        "GA + local search": (style.DEVICE, "-"),
        "GA": (style.HOST, "-"),
        "greedy": (style.MUTED, "--"),
        "random": (style.LIMIT, ":"),
    }
    figure = new_figure(11, 7)
    grid = figure.subplots(len(MODES), max(1, len(curves)), squeeze=False)
    for column, (name, bound, found) in enumerate(curves):
        for row, mode in enumerate(MODES):
            axes = grid[row][column]
            for kind, (colour, dashes) in looks.items():
                pairs = [(x, y / bound) for x, y in zip(LIMITS, found[f"{mode}: {kind}"], strict=True) if y is not None]
                if pairs:
                    axes.plot(
                        *zip(*pairs, strict=True), dashes, color=colour, label=kind, marker="." if dashes == "-" else ""
                    )
            axes.set_xscale("log")
            axes.set_title(f"{name}, {mode}" if row else name, fontsize=8, loc="left")
            axes.set_ylim(bottom=1)
            axes.spines[["top", "right"]].set_visible(False)
            if not column:
                axes.set_ylabel(f"{mode}: bytes moved / bound")
            if row:
                axes.set_xlabel("seconds")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path)


def replay(arguments: argparse.Namespace) -> None:
    """Sizes scaled down, then rounded up to whole pages; claimed and moved in bytes."""
    from memx.replay import Limits, prepare_device
    from memx.replay import replay as run

    page = 4096
    prepare_device(Limits(4 << 30, 64 << 30, page, "default", True), True)
    print("| trace | device/peak | mode | bound | claimed | moved | in | out | wrong bytes | races |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for path in sorted(arguments.data.glob("traces/*.jsonl.gz")):
        trace = Trace(path, page, arguments.scale)
        problem = read_migration(trace, page)
        for fraction in FRACTIONS:
            least = int(problem.step_bytes.max())
            capacity = max(least, int(fraction * trace.summary().peak_live_bytes) // page * page)
            for mode in (*MODES, "unsegmented"):
                plan = segments(problem, capacity, arguments.time_limit, mode=mode)
                if not plan.feasible:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    target = Path(folder) / "schedule.json"
                    write_schedule(target, plan, Source(str(path), "", "trace", page), page)
                    limits = Limits(capacity, 64 << 30, page, "default", True)
                    result = run(trace, limits, plan=target)
                moved = result.migrated_in_bytes + result.migrated_out_bytes
                print(
                    f"| {path.name.split('.')[0]} | {fraction} | {mode} | {plan.lower_bound} | {plan.migrated_bytes} "
                    f"| {moved} | {result.migrated_in_bytes} | {result.migrated_out_bytes} "
                    f"| {result.mismatches} | {result.races} |",
                    flush=True,
                )
                if not result.ok:
                    sys.exit(f"{path.name} at {fraction}, {mode}: {result.failures}")


def main() -> None:
    parts: dict[str, Callable[[argparse.Namespace], Any]] = {
        "small": small,
        "traces": traces,
        "time": over_time,
        "replay": replay,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--scale", type=Fraction, default=Fraction(1, 64))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    print(machine())
    for name in arguments.parts or parts:
        print(f"\n## {name}\n")
        parts[name](arguments)


if __name__ == "__main__":
    main()
