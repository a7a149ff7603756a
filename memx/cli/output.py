"""What commands print: one JSON object, or text for people; progress where somebody watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

__all__ = ["print_json", "progress_bar"]


def print_json(payload: dict[str, Any]) -> None:
    """One object on standard output."""
    click.echo(json.dumps(payload, indent=2))


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error while the block runs; None where that is not a terminal.

    Yields
    ------
    callable or None
        Takes how many of ``total`` are done.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
