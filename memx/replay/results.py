"""What a replay found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Result", "Sample"]


_MOST_FAILURES: Final = 20


@dataclass(slots=True, frozen=True)
class Sample:
    """The state after an event: bytes that the trace holds, and where memx keeps memory."""

    event: int
    live_bytes: int
    reserved_bytes: int
    host_bytes: int


@dataclass(slots=True)
class Result:
    """One allocator's run of one trace.

    Attributes
    ----------
    ok : bool
        Every expectation met, the device limit held, no race and no mismatch.
    failed_event : int or None
        Number of the first event, from 1, that did not go as expected; ``error`` says how.
    driver_calls : dict
        The allocator's own calls by function, without its start-up.
    modelled_driver_us : float or None
        Those calls at the simulated device's costs: a model, not a measurement. None on a real device.
    races : int or None
        None on a real device, which cannot tell.
    mismatches : int
        Bytes that were not what had been written.
    failed_expectations : int
    plan : dict or None
        Allocations served at planned places, and not, by reason (:meth:`memx.plan.Playback.statistics`).
    failures : list of str
        The first of them, in words.
    moved_at_steps : list of int
        Bytes moved both ways before each ``step`` of the trace.
    """

    allocator: str
    ok: bool = True
    failed_event: int | None = None
    error: str | None = None
    peak_reserved_bytes: int = 0
    peak_allocated_bytes: int = 0
    peak_host_bytes: int = 0
    migrated_in_bytes: int = 0
    migrated_out_bytes: int = 0
    prefetched_used_bytes: int = 0
    driver_calls: dict[str, int] = field(default_factory=dict)
    modelled_driver_us: float | None = None
    races: int | None = None
    mismatches: int = 0
    failed_expectations: int = 0
    failures: list[str] = field(default_factory=list)
    plan: dict[str, int] | None = None
    wall_s: float = 0.0
    samples: list[Sample] = field(default_factory=list, repr=False)
    moved_at_steps: list[int] = field(default_factory=list, repr=False)

    def add_failure(self, event: int, message: str) -> None:
        """An expectation that was not met, at an event's number."""
        self.failed_expectations += 1
        if self.failed_event is None:
            self.failed_event, self.error = event, message
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(message)

    def as_json(self) -> dict[str, Any]:
        """The fields as the command line prints them."""
        return {
            name: getattr(self, name)
            for name in (
                "allocator",
                "ok",
                "failed_event",
                "error",
                "peak_reserved_bytes",
                "peak_allocated_bytes",
                "peak_host_bytes",
                "migrated_in_bytes",
                "migrated_out_bytes",
                "driver_calls",
                "modelled_driver_us",
                "races",
                "mismatches",
                "failed_expectations",
                "failures",
                "plan",
                "wall_s",
            )
        }
