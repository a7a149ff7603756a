"""``memx sim``: programs on the simulated device."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which

import click

from ..errors import InvalidStateError, InvalidValueError
from ..sizes import format_size, parse_size
from .options import size

__all__ = ["sim"]


@click.group()
def sim() -> None:
    """Run programs on the simulated device."""


@sim.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--memory", default="8GiB", show_default=True, callback=size, help="Memory of each device.")
@click.option(
    "--host-memory", default="16GiB", show_default=True, callback=size, help="Host memory that may be pinned."
)
@click.option("--page", default="2MiB", show_default=True, callback=size, help="Allocation granularity.")
@click.option("--devices", default=1, show_default=True, type=click.IntRange(1, 16), help="How many devices.")
@click.option("--seed", default=0, show_default=True, type=int, help="For fault injection with a probability.")
@click.option("--quiet", is_flag=True, help="Do not say on standard error what is simulated.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    memory: str, host_memory: str, page: str, devices: int, seed: int, quiet: bool, program: tuple[str, ...]
) -> None:
    """Start PROGRAM, and the programs that it starts, on the simulated device and CUDA runtime.

    PyTorch's CUDA build runs on it without a GPU: allocations, copies, streams, graphs and errors are real, kernels
    compute nothing. The exit status is the program's.
    """
    environment = environment_for(memory, host_memory, page, devices, seed)
    path = which(program[0])
    if path is None:
        raise click.UsageError(f"no program {program[0]!r}")
    if not quiet:
        many = f", {devices} of them" if devices > 1 else ""
        nbytes = format_size(parse_size(memory, parse_size(page)))
        click.echo(f"memx: simulated device of {nbytes}{many}; kernels compute nothing", err=True)
    try:
        os.execve(path, program, environment)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None


def environment_for(memory: str, host_memory: str, page: str, devices: int, seed: int) -> dict[str, str]:
    """This process's environment, changed so that a program started with it is on the simulated device.

    Raises
    ------
    InvalidStateError
        There is nothing to load, or the loader cannot be told of it.
    InvalidValueError
        The simulated driver refuses the device.
    """
    from ..sim import libraries

    paths = [str(path) for path in libraries()]
    if not paths:
        raise InvalidStateError("this installation of memx has no simulated driver")
    if any(mark in paths[0] for mark in " :"):
        raise InvalidStateError(f"the loader cannot preload from a path with a space or a colon: {paths[0]!r}")
    _check(memory, host_memory, page)
    before = os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    preload = paths + [entry for entry in before if entry and entry not in paths]
    setting = f"memory={memory},host_memory={host_memory},page={page},devices={devices},seed={seed}"
    # Every device that was asked for is visible.
    kept = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    return {
        **kept,
        "LD_PRELOAD": ":".join(preload),
        "MEMX_SIMULATE": setting,
        "TRITON_LIBCUDA_PATH": str(Path(paths[0]).parent),  # where Triton links the driver
    }


def _check(memory: str, host_memory: str, page: str) -> None:
    page_bytes = parse_size(page)
    most = 1 << 40
    if page_bytes < 4096 or page_bytes & (page_bytes - 1) or page_bytes > 1 << 30:
        raise InvalidValueError(f"a page is a power of two from 4 KiB to 1 GiB, not {page!r}")
    if not page_bytes <= parse_size(memory, page_bytes) <= most:
        raise InvalidValueError(f"a device has one page to 1 TiB, not {memory!r}")
    if parse_size(host_memory, page_bytes) > most:
        raise InvalidValueError(f"host memory is at most 1 TiB, not {host_memory!r}")
