"""The four parts of the demo, each run on the same training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..plan import Buffers, Layout, layout
from ..plan.lifetimes import trace_buffers
from ..replay import Limits, Result, replay
from ..sizes import format_size
from ..trace import Trace
from ..trace import events as ev
from .spread import spread

__all__ = ["Part", "Stage", "oversubscribe", "plan_layout", "reuse_streams", "share_tiers"]

STREAMS = 4
_SAMPLES = 600
_LAYOUT_SECONDS = 3.0


@dataclass(slots=True)
class Part:
    """One part's outcome.

    Attributes
    ----------
    name : str
    title : str
        What it shows.
    ok : bool
    lines : list of str
        What happened, for people.
    numbers : dict
        The same for programs.
    results : list of Result
        Replays that it made.
    """

    name: str
    title: str
    ok: bool
    lines: list[str]
    numbers: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    plan: tuple[Buffers, Layout] | None = None

    def as_json(self) -> dict[str, Any]:
        """Name, title, ok and the numbers."""
        return {"name": self.name, "title": self.title, "ok": self.ok, **self.numbers}


@dataclass(slots=True, frozen=True)
class Stage:
    """What the parts share: the step, the device made too small for it, and who is told of progress."""

    trace: Trace
    limits: Limits
    device: int = 0
    progress: Callable[[int], None] | None = None

    def run(self, events: Iterable[ev.Event], limits: Limits) -> Result:
        """One verified replay."""
        every = max(1, self.trace.summary().events // _SAMPLES)
        return replay(events, limits, device=self.device, progress=self.progress, sample_every=every, verify=True)


def _moved(result: Result) -> dict[str, Any]:
    return {
        "peak_reserved_bytes": result.peak_reserved_bytes,
        "peak_host_bytes": result.peak_host_bytes,
        "migrated_in_bytes": result.migrated_in_bytes,
        "migrated_out_bytes": result.migrated_out_bytes,
        "races": result.races,
        "mismatches": result.mismatches,
    }


def oversubscribe(stage: Stage) -> Part:
    """The step on a device with half the memory that it needs; pages move when work needs them."""
    result = stage.run(stage.trace, replace(stage.limits, lazy=True))
    return Part(
        "oversubscription",
        "A training step on half the GPU memory that it needs",
        result.ok,
        [
            f"The step holds {format_size(stage.trace.peak_live_bytes())} at its peak; "
            f"the GPU has {format_size(stage.limits.device_limit)}.",
            f"memx used {format_size(result.peak_reserved_bytes)} of it, and moved "
            f"{format_size(result.migrated_out_bytes)} out and {format_size(result.migrated_in_bytes)} in.",
        ],
        _moved(result),
        [result],
    )


def reuse_streams(stage: Stage) -> Part:
    """The step spread over streams, in each reuse mode, on a device that is large enough."""
    roomy = replace(stage.limits, device_limit=4 * stage.trace.peak_live_bytes(), lazy=False)
    results = {
        mode: stage.run(spread(stage.trace, STREAMS), replace(roomy, reuse=mode))
        for mode in ("stream", "default", "mutual")
    }
    reserved = {mode: result.peak_reserved_bytes for mode, result in results.items()}
    return Part(
        "reuse",
        f"The same step on {STREAMS} concurrent streams, memory passed from one to another",
        all(result.ok for result in results.values()),
        [
            f"Each stream keeps to its own freed memory: {format_size(reserved['stream'])}. "
            f"Whatever is proven to be over is reused: {format_size(reserved['default'])}. "
            f"Streams may be made to wait for one another: {format_size(reserved['mutual'])}."
        ],
        {
            "streams": STREAMS,
            "peak_reserved_bytes_by_mode": reserved,
            "races": _sum_races(results.values()),
            "mismatches": sum(result.mismatches for result in results.values()),
        },
        list(results.values()),
    )


def share_tiers(stage: Stage) -> Part:
    """The step without moving anything: what has no room on the device is born in host memory."""
    result = stage.run(stage.trace, replace(stage.limits, lazy=False))
    return Part(
        "store",
        "One pool of GPU and host memory: nothing moves, what does not fit is born in host memory",
        result.ok,
        [
            f"{format_size(result.peak_reserved_bytes)} of GPU memory and "
            f"{format_size(result.peak_host_bytes)} of host memory served the step, every buffer reachable "
            "from its birth to its free."
        ],
        _moved(result),
        [result],
    )


def plan_layout(stage: Stage) -> Part:
    """The step's memory laid out beforehand."""
    buffers = trace_buffers(stage.trace)
    found = layout(buffers, time_limit=_LAYOUT_SECONDS)
    excess = found.height / max(found.lower_bound, 1) - 1
    return Part(
        "layout",
        "The step's memory planned before it runs",
        found.height >= found.lower_bound,
        [
            f"{len(buffers)} buffers in {format_size(found.height)}, {100 * excess:.2f}% above what is alive "
            f"at once, found in {found.seconds:.2f} s."
        ],
        {
            "buffers": len(buffers),
            "height": found.height,
            "lower_bound": found.lower_bound,
            "optimal": bool(found.optimal),
            "seconds": found.seconds,
        },
        plan=(buffers, found),
    )


def _sum_races(results: Iterable[Result]) -> int | None:
    counts = [result.races for result in results]
    return None if None in counts else sum(count or 0 for count in counts)
