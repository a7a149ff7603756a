"""Starting a program that is to be recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["environment", "launch"]

_ROOT = Path(__file__).parents[2]
_STDERR = 2  # the file, whatever sys.stderr is
_SITE = Path(__file__).parent / "site"


def environment(task: str, base: Mapping[str, str], **settings: str) -> dict[str, str]:
    """``base``, changed so that Python processes started with it do a task of :mod:`memx.record.hook`.

    Parameters
    ----------
    task : {"record", "estimate"}
    base : mapping
        An environment.
    **settings : str
        Further variables for the task.
    """
    paths = [str(_SITE), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    out = {**base, **settings, "MEMX_CHILD": task, "PYTHONPATH": os.pathsep.join(paths)}
    if _ROOT.name not in ("site-packages", "dist-packages"):
        out["MEMX_RECORD_ROOT"] = str(_ROOT)
    return out


def launch(program: Sequence[str], variables: Mapping[str, str], quiet_stdout: bool = False) -> int:
    """Run a program to its end; interrupts are its own business.

    Parameters
    ----------
    program : sequence of str
    variables : mapping
        Its environment.
    quiet_stdout : bool
        Let it write to standard error instead of standard output.

    Returns
    -------
    int
        Its exit status, as a shell has it.

    Raises
    ------
    OSError
        It cannot be started.
    """
    sys.stdout.flush()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = subprocess.Popen(
            program, env=dict(variables), stdout=_STDERR if quiet_stdout else None, restore_signals=True
        )
        code = status.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code
