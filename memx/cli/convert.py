"""``memx convert``: traces, tables, snapshots and logs, one as another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from ..plan.convert import convert as run
from ..plan.convert import output_kind
from ..sizes import format_size
from .options import as_bytes, size
from .output import print_json

__all__ = ["convert"]

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="IN", type=_FILE)
@click.argument("target", metavar="OUT", type=_FILE)
@click.option("--align", callback=size, help="What a table's rows ask for at least. [default: 512, CSV 1]")
@click.option("--device", type=click.IntRange(min=0), help="Which device of a snapshot of several.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert(*, source: Path, target: Path, align: str | None, device: int | None, as_json: bool) -> None:
    """Write what IN says as OUT, a table (.csv) or a trace (.jsonl), either also with .gz or .zst after it.

    IN is a CSV of id,lower,upper,size (and alignment, offset), a memx trace, a PyTorch memory snapshot or an RMM
    log, known by its content. A layout planned from OUT is one of IN.
    """
    output_kind(target)
    with Console(stderr=True).status(f"converting {source.name}"):
        done = run(source, target, as_bytes(align), device)
    if as_json:
        print_json({**asdict(done), "seconds": round(done.seconds, 6)})
        return
    what = f"{done.buffers:,} buffers" + (f" in {done.events:,} events" if done.events is not None else "")
    click.echo(f"{done.input} ({done.input_kind}): {what}, at most {format_size(done.peak_live_bytes)} alive")
    for thing, count in done.left_out.items():
        click.echo(f"left out: {thing}, {count:,}")
    click.echo(f"{done.output_kind}: {done.output}")
