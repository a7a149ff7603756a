"""``memx plan``: lay out what a file says is alive when."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click
from rich.console import Console

from ..errors import InvalidValueError
from ..plan import Buffers, Layout, layout, read_buffers
from ..plan.layouts import METHODS
from ..plan.plans import write_layout
from ..plan.plot import COLOURS, PICTURE_SUFFIXES, plot_layout
from ..sizes import format_size
from .options import as_bytes, factor, size
from .output import print_json

__all__ = ["plan"]

# What a moment is, in each kind of file.
_TIME = {"csv": "time", "rmm": "event of the log", "snapshot": "entry of the history", "trace": "event of the trace"}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--capacity", callback=size, help="Fit into this much, and stop once it does.")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="auto: greedy, then search where that is not known to be the lowest.",
)
@click.option("--time-limit", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the search.")
@click.option("--align", callback=size, help="Align every offset at least to this. [default: 512, CSV 1]")
@click.option("--scale", callback=factor, help="Shrink every size of a trace, as a scaled replay does.")
@click.option("--device", type=click.IntRange(min=0), help="Which device of a snapshot of several.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write the plan: NAME.json or NAME.csv.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the layout: html, png, svg or pdf.")
@click.option("--colour", type=click.Choice(COLOURS), default="size", show_default=True, help="What colours say.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    *,
    file: Path,
    capacity: str | None,
    method: str,
    time_limit: float,
    seed: int,
    align: str | None,
    scale: Fraction | None,
    device: int | None,
    output: Path | None,
    plot: Path | None,
    colour: str,
    as_json: bool,
) -> int:
    """Compute offsets for the buffers of FILE so that none overlap while alive.

    FILE is a CSV of id,lower,upper,size (and alignment, offset), a memx trace, a PyTorch memory snapshot or
    an RMM log. Status 1: the layout does not fit the capacity, and no plan is written.
    """
    _check_names(output, plot)
    buffers, source = read_buffers(file, as_bytes(align), device, scale)
    limit = as_bytes(capacity, source.page)
    with Console(stderr=True).status(f"laying out {len(buffers):,} buffers"):
        result = layout(buffers, limit, time_limit, seed, method=method)
    if output is not None and result.fits is not False:
        write_layout(output, buffers, result, source)
    if plot is not None:
        plot_layout(plot, buffers, result, file.name, time=_TIME[source.kind], colour=colour)
    if as_json:
        print_json(_as_json(buffers, result))
    else:
        _print(buffers, result, output, plot)
    return 1 if result.fits is False else 0


def _check_names(output: Path | None, picture: Path | None) -> None:
    if output is not None and output.suffix not in (".json", ".csv"):
        raise InvalidValueError(f"{output}: a plan is written as .json or .csv")
    if picture is not None and picture.suffix not in PICTURE_SUFFIXES:
        raise InvalidValueError(f"{picture}: a picture is written as {', '.join(PICTURE_SUFFIXES)}")


def _as_json(buffers: Buffers, result: Layout) -> dict[str, object]:
    return {
        "buffers": len(buffers),
        "height": result.height,
        "lower_bound": result.lower_bound,
        "optimal": result.optimal,
        "fits": result.fits,
        "infeasible": result.infeasible,
        "capacity": result.capacity,
        "offsets": result.offsets.tolist(),
        "seconds": round(result.seconds, 6),
        "method": result.method,
        "seed": result.seed,
    }


def _print(buffers: Buffers, result: Layout, output: Path | None, picture: Path | None) -> None:
    over = result.height / result.lower_bound if result.lower_bound else 1.0
    click.echo(
        f"{len(buffers):,} buffers in {format_size(result.height)} ({result.height} bytes), "
        f"{over:.4f} x the most alive at once"
    )
    proof = "no layout is lower" if result.optimal else "a lower one is not ruled out"
    click.echo(f"{result.method}, {result.seconds:.3f} s: {proof}")
    if result.fits is not None:
        assert result.capacity is not None
        if result.fits:
            click.echo(f"fits {result.capacity} bytes")
        elif result.infeasible:
            click.echo(f"cannot fit {result.capacity} bytes: proven")
        else:
            click.echo(f"does not fit {result.capacity} bytes as far as was tried")
        if result.fits is False and output is not None:
            click.echo(f"{output}: not written")
    if output is not None and result.fits is not False:
        click.echo(f"plan: {output}")
    if picture is not None:
        click.echo(f"picture: {picture}")
