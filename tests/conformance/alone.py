"""Run what fails a context, or may crash, in a process and a driver of its own."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

# The server imports these once and starts no driver; its children import the rest.
_PRELOADED = ["numpy", "cuda.bindings.driver"]
_START = """
from conformance.api import *
if started:
    context = start()
    page = int(call("cuMemGetAllocationGranularity", properties(), MINIMUM))
    kernels = Kernels()
    s = call("cuStreamCreate", NON_BLOCKING)
"""
_SECONDS = 60


def _run(setting: str, script: str, started: bool, answers: Connection) -> None:
    if setting:
        os.environ["MEMX_SIMULATE"] = setting  # read when memx is imported
    names: dict[str, Any] = {"started": started}
    exec(_START, names)
    names["answer"] = answers.send
    exec(script, names)
    answers.close()
    os._exit(0)  # a dead context has nothing to tidy up


def alone(device: Any, script: str, *, started: bool = True, devices: int = 1) -> list[Any]:
    """What a script gives to ``answer``, run on a driver of the same kind.

    `started` gives it a context, the page, the kernels, and a non-blocking stream `s`; `devices` is how many a
    simulated driver has.
    """
    setting = f"memory=64MiB,host_memory=64MiB,page={device.page},devices={devices}" if device.simulated else ""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(_PRELOADED)
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=_run, args=(setting, script, started, theirs))
    child.start()
    theirs.close()
    answers = []
    try:
        while ours.poll(_SECONDS):
            answers.append(ours.recv())
    except EOFError:
        pass
    else:
        child.kill()
    child.join()
    assert child.exitcode == 0, f"exit status {child.exitcode} after {answers}"
    return answers
