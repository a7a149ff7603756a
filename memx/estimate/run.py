"""Running the program and gathering what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InvalidStateError
from ..record import environment
from ..trace import Header, write
from .events import events_of
from .history import History
from .raw import Raw
from .replays import ALLOCATORS, needs
from .report import add_device, add_needs, add_plan, add_traffic, basics

__all__ = ["estimate"]

#: How long a program may take to end after it was told to.
_GRACE_S = 60.0
_POLL_S = 0.1
_MEMORY = "512GiB"
_PLAN_S = 5.0
_STDERR = 2  # the file, whatever sys.stderr is


def estimate(
    program: Sequence[str],
    *,
    steps: int = 3,
    device_bytes: int | None = None,
    gpu: bool = False,
    seconds: float | None = None,
    allocators: Sequence[str] = ALLOCATORS,
    keep_trace: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a program for a few optimizer steps, and say what memory it needs.

    Parameters
    ----------
    program : sequence of str
        Its output goes to standard error.
    steps : int
        After how many steps it is ended.
    device_bytes : int, optional
        A device to say more about.
    gpu : bool
        Run it on this machine's GPU instead of the simulated device.
    seconds : float, optional
        End it after so long, however many steps it has made.
    allocators : sequence of str
        Whose needs to find.
    keep_trace : Path, optional
        Where to write the program's allocations.
    progress : callable
        Told what is being done.

    Returns
    -------
    dict
        What ``memx estimate --json`` prints.

    Raises
    ------
    InvalidStateError
        The program made no CUDA tensor.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memx-") as folder:
        progress("running the program (Ctrl-C ends it, and what it did until then is looked at)")
        status = _run(program, Path(folder), steps, gpu, seconds, operations=device_bytes is not None)
        raw = _largest(Path(folder))
        if raw is None or not raw.events:
            error = raw.error.partition("\n")[0] if raw is not None else ""
            raise InvalidStateError(
                f"the program ended with status {status} and made no CUDA tensor through PyTorch: "
                + (error or "it was killed, or uses the CPU, or its Python does not read PYTHONPATH (-E, -I, -S)")
            )
        ran = time.monotonic()
        history = History.of(raw)
        report = basics(raw, history, status)
        trace = str(keep_trace or Path(folder) / "trace.jsonl")
        events = list(events_of(raw, history))
        write(trace, Header(name=Path(raw.program.split(" ")[0]).name or "program"), events)
        for allocator in allocators:
            progress(f"replaying with {allocator}")
            try:
                add_needs(report, allocator, needs(trace, allocator, device_bytes), device_bytes)
            except InvalidStateError as error:
                report["notes"].append(f"{allocator}: {error}")
        if device_bytes is not None:
            add_device(report, device_bytes)
        if device_bytes is not None and allocators and not report["device"]["fits"].get("memx", True):
            progress("replaying what crosses the bus")
            add_traffic(report, raw, events, device_bytes)
        progress("planning a layout")
        add_plan(report, history, _PLAN_S)
    report["seconds"] = {"program": round(ran - started, 2), "all": round(time.monotonic() - started, 2)}
    return report


def _run(program: Sequence[str], folder: Path, steps: int, gpu: bool, seconds: float | None, operations: bool) -> int:
    base = dict(os.environ)
    if not gpu:
        from ..cli.sim import environment_for
        from ..sim import libraries

        base = environment_for(_MEMORY, _MEMORY, "2MiB", 1, 0)
        base.setdefault("TRITON_LIBCUDA_PATH", str(libraries()[0].parent))
    settings = {
        "MEMX_ESTIMATE_FOLDER": str(folder),
        "MEMX_ESTIMATE_STEPS": str(steps),
        "MEMX_ESTIMATE_SECONDS": str(seconds or 0),
        "MEMX_ESTIMATE_OPERATIONS": str(int(operations)),
    }
    sys.stdout.flush()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(program, env=environment("estimate", base, **settings), stdout=_STDERR)
        patience: float | None = None
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_POLL_S)
            if patience is None and (folder / f"{child.pid}.json").exists():
                patience = time.monotonic() + _GRACE_S
            if patience is not None and time.monotonic() > patience:
                child.kill()
    finally:
        signal.signal(signal.SIGINT, before)
    code = int(child.returncode)
    return 128 - code if code < 0 else code


def _largest(folder: Path) -> Raw | None:
    """What the process with the most steps, and then allocations, wrote."""
    found = [Raw.from_json(json.loads(path.read_text())) for path in folder.glob("*.json")]
    return max(found, key=lambda raw: (raw.steps, len(raw.events)), default=None)
