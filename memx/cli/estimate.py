"""``memx estimate``."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import InvalidValueError
from .output import print_json
from .record import resolve_program

__all__ = ["estimate"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--steps", default=3, show_default=True, type=click.IntRange(1), help="Optimizer steps to run.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End the program after so long.")
@click.option("--device", help="A GPU by name (h100-80gb) or memory (24GiB): does it fit?")
@click.option("--gpu", is_flag=True, help="Run on this machine's GPU instead of the simulated device.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page with the picture.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the allocations as a trace (.jsonl.gz).",
)
@click.option("--quick", is_flag=True, help="Do not replay with the allocators.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def estimate(
    *,
    steps: int,
    seconds: float | None,
    device: str | None,
    gpu: bool,
    html: Path | None,
    trace: Path | None,
    quick: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> int:
    """Run PROGRAM for a few optimizer steps on a simulated GPU, and say what memory it needs.

    Allocations are what they would be on a GPU; numbers mean nothing, so losses may be zero or NaN. The program's
    output goes to standard error. Status 1: the program failed, or does not fit --device with PyTorch's allocator.
    """
    from ..estimate import device_bytes
    from ..estimate import estimate as run

    nbytes = device_bytes(device) if device is not None else None
    for target in (html, trace):
        if target is not None and not target.absolute().parent.is_dir():
            raise InvalidValueError(f"{target}: there is no such folder")
    path = resolve_program(program)
    more = {"allocators": ()} if quick else {}
    report = run(
        [path, *program[1:]],
        steps=steps,
        seconds=seconds,
        device_bytes=nbytes,
        gpu=gpu,
        keep_trace=trace,
        progress=lambda what: click.echo(f"memx: {what}", err=True),
        **more,
    )
    if device is not None and "device" in report:
        report["device"]["name"] = device
    if html is not None:
        from ..estimate.page import write_page

        write_page(html, report)
    if as_json:
        print_json(report)
    else:
        from ..estimate.text import print_report

        print_report(report)
    fits = report.get("device", {}).get("fits", {})
    too_small = nbytes is not None and report["peak_bytes"] > nbytes
    return 1 if report["exit_status"] or too_small or fits.get("torch-native") is False else 0
