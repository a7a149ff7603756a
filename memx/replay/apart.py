"""Replays in processes of their own: one allocator each, on a device that nobody else has used."""

from __future__ import annotations

import multiprocessing

from ..trace import Trace
from .device import Limits, prepare_device
from .engine import replay
from .results import Result

__all__ = ["replay_apart"]


def replay_apart(
    trace: Trace,
    limits: Limits,
    *,
    allocator: str,
    verify: bool,
    simulate: bool,
    sample_every: int = 0,
    plan: str | None = None,
) -> Result:
    """Run a trace with one allocator in a fresh process; the parameters are those of :func:`memx.replay.replay`.

    Raises
    ------
    InvalidStateError
        The allocator is not there.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (trace, limits, allocator, verify, simulate, sample_every, plan))


def _run(
    trace: Trace,
    limits: Limits,
    allocator: str,
    verify: bool,
    simulate: bool,
    sample_every: int,
    plan: str | None,
) -> Result:
    from . import torch_allocator

    if allocator in torch_allocator.SETTINGS:
        torch_allocator.set_up(allocator)
    prepare_device(limits, simulate, contents=verify)
    return replay(trace, limits, allocator=allocator, verify=verify, sample_every=sample_every, plan=plan)
