"""``memx record``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import click

from ..errors import InvalidStateError
from ..sizes import format_size
from .options import size
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..record import Recording

__all__ = ["record", "resolve_program"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The trace: .jsonl, .jsonl.gz or .jsonl.zst.",
)
@click.option("--operations", is_flag=True, help="Also what every operation reads and writes.")
@click.option(
    "--snapshot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the memory in PyTorch's form (.pickle).",
)
@click.option("--simulate", is_flag=True, help="Use the simulated device even where there is a GPU.")
@click.option("--memory", default="80GiB", show_default=True, callback=size, help="Memory of a simulated device.")
@click.option("--quiet", is_flag=True, help="Say nothing on standard error but errors.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object; the program's output goes to standard error."
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def record(
    *,
    output: Path,
    operations: bool,
    snapshot: Path | None,
    simulate: bool,
    memory: str,
    quiet: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> int:
    """Run PROGRAM and write down what its PyTorch asks of device memory: a trace for `memx replay` and `memx plan`.

    memx is PyTorch's allocator meanwhile. Every process and device that is used gets a trace of its own; further ones
    have a number before the suffix. The trace is readable at every moment, and after a kill. The exit status is the
    program's; 1 if that is 0 and a trace could not be written to its end.
    """
    from ..record import Server, environment, launch
    from ..record.server import check_target
    from ..replay.device import has_real_driver

    check_target(output)
    if snapshot is not None:
        check_target(snapshot)
    path = resolve_program(program)
    base = dict(os.environ)
    if simulate or not has_real_driver():
        from .sim import environment_for

        base = environment_for(memory, "1TiB", "2MiB", 1, 0)
        if not quiet:
            click.echo(f"memx: recording on a simulated device of {memory}; kernels compute nothing", err=True)
    with Server(output, snapshot) as server:
        settings = {
            "MEMX_RECORD_SOCKET": server.address,
            "MEMX_RECORD_OPERATIONS": str(int(operations)),
            "MEMX_RECORD_SNAPSHOT": str(int(snapshot is not None)),
        }
        try:
            status = launch([path, *program[1:]], environment("record", base, **settings), quiet_stdout=as_json)
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from None
    recordings = server.recordings
    if as_json:
        print_json({"exit_status": status, "traces": [asdict(recording) for recording in recordings]})
    elif not quiet:
        _tell(recordings)
    if not recordings:
        raise InvalidStateError(
            "nothing was recorded: the program made no CUDA tensor, or its Python does not read PYTHONPATH (-E, -I, -S)"
        )
    errors = [recording.error for recording in recordings if recording.error]
    for reason in errors:
        click.echo(f"memx: error: {reason}; the trace ends early", err=True)
    return status or (1 if errors else 0)


def resolve_program(program: Sequence[str]) -> str:
    """The program's file.

    Raises
    ------
    click.UsageError
        There is none.
    """
    path = which(program[0])
    if path is None:
        raise click.UsageError(f"no program {program[0]!r}")
    return path


def _tell(recordings: Sequence[Recording]) -> None:
    for one in recordings:
        click.echo(
            f"memx: {one.path}: {one.events:,} events, {one.buffers:,} buffers, {one.steps} optimizer steps, "
            f"peak {format_size(one.peak_live_bytes)}",
            err=True,
        )
