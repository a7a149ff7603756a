"""The command line. Commands are imported when they are run, so that ``memx --help`` is quick."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from ..errors import InvalidStateError, InvalidValueError, MemxError, PlanError, TraceError

__all__ = ["cli", "main"]

# Each is a click command of this name in the module of this name here.
_COMMANDS = {
    "demo": "Show the main job on a real training trace.",
    "replay": "Run a trace with memx as its allocator and verify the contents.",
    "plan": "Compute a memory layout for buffers whose lifetimes are known.",
    "convert": "Turn a trace, a table, a PyTorch snapshot or an RMM log into one of the first two.",
    "segments": "Plan which buffers share memory so that the fewest bytes move.",
    "record": "Record a program's allocations as a trace.",
    "estimate": "Say what memory a program will need, without a GPU.",
    "sim": "Run programs on the simulated device.",
    "doctor": "Say what this machine's driver can do.",
}
_BAD_INPUT = (click.ClickException, InvalidValueError, TraceError, PlanError)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for name in _COMMANDS if importlib.util.find_spec(f"{__name__}.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run a command and exit with its status; an error is one line on standard error."""
        extra["standalone_mode"] = False
        try:
            status = super().main(args, prog_name or "memx", **extra)
        except _BAD_INPUT as error:
            message = error.format_message() if isinstance(error, click.ClickException) else str(error)
            sys.exit(_report(message, 2))
        except InvalidStateError as error:
            sys.exit(_report(str(error), 2))
        except MemxError as error:
            sys.exit(_report(str(error), 1))
        except (click.Abort, KeyboardInterrupt):
            sys.exit(_report("interrupted", 130))
        sys.exit(status if isinstance(status, int) else 0)


def _report(message: str, status: int) -> int:
    click.echo(f"memx: error: {' '.join(message.split())}", err=True)
    return status


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="memx")
def cli() -> None:
    """A GPU memory manager that backs addresses page by page, with GPU or host memory.

    Without a GPU, demo and replay run on a simulated one.
    """


def main(args: Sequence[str] | None = None) -> None:
    """The ``memx`` program."""
    cli.main(args)
