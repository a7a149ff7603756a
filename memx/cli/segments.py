"""``memx segments``: plan what is on a device that is too small, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from ..errors import InvalidValueError
from ..plan.inputs import Source, file_sha256
from ..plan.migration import SegmentPlan
from ..plan.migration import segments as plan_segments
from ..plan.migration.cluster import plan_many, pool_of
from ..plan.migration.files import write_schedule
from ..plan.migration.picture import PICTURE_SUFFIXES, plot_segments
from ..plan.migration.problem import read_migration
from ..plan.migration.result import MODES
from ..plan.migration.solve import Progress
from ..plan.migration.timeline import write_timeline
from ..sizes import format_size
from ..trace import Trace
from .options import as_bytes, factor, size
from .output import print_json

__all__ = ["segments"]


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--capacity", callback=size, required=True, help="Bytes of the device.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="exclusive",
    show_default=True,
    help="exclusive: one object in a segment at a time; packed: several while they fit; unsegmented: no segments.",
)
@click.option("--segments", "count", type=click.IntRange(min=1), help="How many. [default: as many as fit]")
@click.option("--time-limit", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the search.")
@click.option("--round-to", callback=size, help="Round sizes up, to pages such as 1p: what a device can move.")
@click.option("--scale", callback=factor, help="Shrink every size, as a scaled replay does.")
@click.option(
    "-o", "output", type=click.Path(path_type=Path), help="Write the schedule: NAME.json; of several, a folder."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw it: html, png, svg, pdf; json is a trace for Perfetto."
)
@click.option("--scheduler", metavar="dask:ADDRESS", help="Spread islands, or several FILEs, over a Dask cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def segments(
    *,
    files: tuple[Path, ...],
    capacity: str,
    mode: str,
    count: int | None,
    time_limit: float,
    seed: int,
    round_to: str | None,
    scale: Fraction | None,
    output: Path | None,
    plot: Path | None,
    scheduler: str | None,
    as_json: bool,
) -> int:
    """Plan which objects of a trace share memory, and what moves when, so that the fewest bytes move.

    FILE is a memx trace with kernels; of several, such as one a rank, each is planned by itself. A schedule that is
    written is run by `memx replay --plan`; round its sizes to pages for that. Status 1: some operation cannot be
    served, or no plan was found, and nothing is written.
    """
    _check_names(output, plot, several=len(files) > 1)
    if mode == "unsegmented" and count is not None:
        raise InvalidValueError("--segments: a plan without segments takes no number of them")
    traces = [Trace(file, scale=scale) for file in files]
    page = traces[0].page
    limit, rounding = as_bytes(capacity, page), as_bytes(round_to, page) or 1
    assert limit is not None
    if round_to is not None and as_bytes(round_to, page) == 0:
        raise InvalidValueError("--round-to: sizes cannot be rounded to 0 bytes")
    if any(size and size.endswith("p") for size in (capacity, round_to)) and any(t.page != page for t in traces):
        raise InvalidValueError("a size in pages, and traces of different pages")
    problems = [read_migration(trace, rounding) for trace in traces]
    options: dict[str, Any] = {"mode": mode, "segments": count}
    what = f"{len(files)} traces" if len(files) > 1 else f"{len(problems[0].size):,} objects"
    with pool_of(scheduler) as pool, _progress(what) as progress:
        if len(files) > 1:
            plans = plan_many(problems, limit, time_limit, seed, options, pool)
        else:
            plans = [plan_segments(problems[0], limit, time_limit, seed, pool=pool, progress=progress, **options)]
    for file, trace, plan in zip(files, traces, plans, strict=True):
        if not plan.feasible:
            click.echo(f"{file}: infeasible: {plan.reason}", err=True)
            continue
        if output is not None:
            target = output / f"{_stem(file)}.schedule.json" if len(files) > 1 else output
            write_schedule(target, plan, Source(str(file), file_sha256(str(file)), "trace", trace.page), rounding)
        if plot is not None:
            (write_timeline if plot.suffix == ".json" else plot_segments)(plot, plan, file.name)
    if as_json and len(files) == 1:
        print_json(_as_json(plans[0]))
    elif as_json:
        named = zip(files, plans, strict=True)
        print_json({"plans": [{"trace": str(file), **_as_json(plan)} for file, plan in named]})
    else:
        for file, plan in zip(files, plans, strict=True):
            if len(files) > 1:
                click.echo(f"{file}:")
            _print(plan, output, plot)
    return 0 if all(plan.feasible for plan in plans) else 1


def _stem(file: Path) -> str:
    return file.name.split(".jsonl")[0]


def _check_names(output: Path | None, plot: Path | None, *, several: bool) -> None:
    if several and plot is not None:
        raise InvalidValueError(f"{plot}: a picture is of one trace")
    if several and output is not None and not output.is_dir():
        raise InvalidValueError(f"{output}: schedules of several traces go to a folder that exists")
    if not several and output is not None and output.suffix != ".json":
        raise InvalidValueError(f"{output}: a schedule is written as .json")
    if plot is not None and plot.suffix not in (*PICTURE_SUFFIXES, ".json"):
        raise InvalidValueError(f"{plot}: a picture is written as {', '.join(PICTURE_SUFFIXES)} or .json")


@contextmanager
def _progress(what: str) -> Iterator[Progress]:
    """The phase and the bytes so far on standard error, where somebody watches."""
    from rich.console import Console

    with Console(stderr=True).status(f"planning {what}") as status:
        yield lambda phase, moved: status.update(f"{phase} {what}: {format_size(moved)} moved")


def _as_json(plan: SegmentPlan) -> dict[str, object]:
    problem = plan.problem
    return {
        "objects": len(problem.size),
        "accesses": len(problem.object),
        "steps": len(problem.steps),
        "mode": plan.mode,
        "capacity": plan.capacity,
        "segments": [
            {"bytes": nbytes, "objects": [problem.ids[o] for o in plan.objects_in(i)]}
            for i, nbytes in enumerate(plan.segments)
        ],
        "feasible": plan.feasible,
        "infeasible_step": plan.infeasible_step,
        "reason": plan.reason or None,
        "migrated_bytes": plan.migrated_bytes,
        "lower_bound": plan.lower_bound,
        "optimal": plan.optimal,
        "seconds": round(plan.seconds, 6),
        "method": plan.method,
        "seed": plan.seed,
    }


def _print(plan: SegmentPlan, output: Path | None, plot: Path | None) -> None:
    problem = plan.problem
    click.echo(f"{len(problem.size):,} objects, {len(problem.object):,} accesses in {len(problem.steps):,} steps")
    if plan.segments:
        largest, least = plan.segments[0], plan.segments[-1]
        click.echo(f"{len(plan.segments)} segments of {format_size(least)} to {format_size(largest)}, {plan.mode}")
    bound = "unknown" if plan.lower_bound is None else f"{format_size(plan.lower_bound)} ({plan.lower_bound} bytes)"
    if plan.migrated_bytes is not None:
        click.echo(f"moved: {format_size(plan.migrated_bytes)} ({plan.migrated_bytes} bytes)")
        proof = "no plan of this kind moves less" if plan.optimal else "less is not ruled out"
        click.echo(f"{plan.method}, {plan.seconds:.3f} s: {proof}")
    click.echo(f"no plan at all moves less than {bound}")
    if plan.feasible:
        if output is not None:
            click.echo(f"schedule: {output}")
        if plot is not None:
            click.echo(f"picture: {plot}")
