"""``memx demo``."""

from __future__ import annotations

from pathlib import Path

import click

from ..sizes import format_size
from .output import print_json, progress_bar

__all__ = ["demo"]


@click.command()
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("memx-demo.png"),
    show_default=True,
    help="Where to write the picture.",
)
@click.option("--no-picture", is_flag=True, help="Write no picture.")
@click.option("--simulate", is_flag=True, help="Use the simulated device even where there is a GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(*, picture: Path, no_picture: bool, simulate: bool, as_json: bool) -> int:
    """Show the main job on a real training trace, on whatever device there is.

    One step of ResNet-50 runs on a device with half the memory that it needs. Every byte is checked.
    Status 1: something was not as it should be.
    """
    from ..demo import Demo
    from ..replay.device import has_real_driver

    wanted = not no_picture and _can_draw(picture)
    show = Demo(simulate or not has_real_driver())
    if not as_json:
        device = "a simulated GPU" if show.simulate else "the GPU"
        peak, limit = show.trace.peak_live_bytes(), show.limits.device_limit
        click.echo(
            f"One training step of ResNet-50 on {device}: it needs {format_size(peak)}, there are {format_size(limit)}."
        )
    with progress_bar("memx demo", show.trace.summary().events) as progress:
        for number, part in enumerate(show.run(progress), 1):
            if not as_json:
                _print(number, part.title, part.ok, part.lines)
                _print_failures([failure for result in part.results for failure in result.failures])
    if wanted:
        from ..report.demo import write_demo

        write_demo(show, picture)
    if as_json:
        print_json({**show.as_json(), "picture": str(picture) if wanted else None})
    else:
        races = show.races()
        found = f"{show.mismatches()} wrong bytes" + ("" if races is None else f", {races} races")
        click.echo(f"\n{found}, in {show.wall_s:.1f} s.")
        if wanted:
            click.echo(f"Picture: {picture}")
    return 0 if show.ok else 1


def _print(number: int, title: str, ok: bool, lines: list[str]) -> None:
    click.secho(f"\n{number}. {title}", bold=True)
    for line in lines:
        click.echo(f"   {line}")
    click.secho("   as it should be" if ok else "   FAILED", fg="green" if ok else "red")


def _print_failures(failures: list[str]) -> None:
    for failure in failures:
        click.echo(f"   {failure}")


def _can_draw(picture: Path) -> bool:
    """Whether there is matplotlib; the demo goes on without it, and says how to get it."""
    from ..report import MissingMatplotlibError, check_picture

    try:
        check_picture(picture)
    except MissingMatplotlibError as error:
        click.echo(f"memx: no picture: {error}", err=True)
        return False
    return True
