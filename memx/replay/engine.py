"""Running a trace from beginning to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from .. import sim
from ..errors import DriverError, InvalidValueError, MemxError
from ..expectation import expectations
from ..trace import events as ev
from .device import Limits
from .driver import Driver
from .operations import ContextLostError, Operations
from .outcomes import EXPECTED_ERRORS
from .results import Result, Sample
from .threads import HostThreads

if TYPE_CHECKING:
    from ..plan import SavedLayout
    from ..plan.migration.files import SavedSchedule
    from .scheduled import ScheduledOperations

__all__ = ["replay"]

_PROGRESS_EVERY = 256


def replay(
    events: Iterable[ev.Event],
    limits: Limits,
    *,
    allocator: str = "memx",
    framework: bool = False,
    verify: bool = True,
    device: int = 0,
    progress: Callable[[int], None] | None = None,
    sample_every: int = 0,
    plan: SavedLayout | SavedSchedule | str | PathLike[str] | None = None,
) -> Result:
    """Run a trace on a device.

    Parameters
    ----------
    events : Trace or iterable of events
    limits : Limits
    allocator : {"memx", "torch-native", "torch-expandable"}
        PyTorch's need a process of their own, told by :func:`torch_allocator.set_up`; they know neither host memory
        nor tags.
    framework : bool
        memx serves the trace as it serves a framework, whose streams last and which announces its captures.
    verify : bool
        Check what kernels read and stamp what they write; otherwise memory is only touched.
    device : int
        Ordinal.
    progress : callable, optional
        Told the number of events done, now and then.
    sample_every : int
        Keep the state after every so many events in ``Result.samples``; 0: do not.
    plan : plan, schedule or path of a plan, optional
        What memx serves allocations by, or what it moves when; PyTorch's allocators take none. A schedule needs
        limits that are lazy, and pages of which its objects' sizes are multiples.

    Returns
    -------
    Result

    Raises
    ------
    TraceError
        The trace is malformed, or needs the simulated device.
    """
    simulated = sim.active()
    driver = Driver(device)
    try:
        driver.load_kernels()
        if simulated:
            sim.clear_races()
        native = _allocator(allocator, device, limits, simulated, driver, framework)
        try:
            run = _Run(
                events,
                limits,
                driver,
                native,
                allocator=allocator,
                verify=verify,
                simulated=simulated,
                progress=progress,
                sample_every=sample_every,
                plan=plan if allocator == "memx" else None,
            )
            return run.run()
        finally:
            with suppress(MemxError):
                native.close()
    finally:
        driver.close()


def _allocator(name: str, device: int, limits: Limits, simulated: bool, driver: Driver, framework: bool) -> Any:
    if name != "memx":
        from .torch_allocator import TorchAllocator

        return TorchAllocator(name, device, limits.device_limit, driver.calls)
    from .. import _native

    return _native.Resource(
        device,
        limits.device_limit,
        limits.host_limit,
        limits.reuse,
        limits.lazy,
        page=limits.page if simulated else 0,
        framework=framework,
        eviction="cost" if limits.eviction == "planned" else limits.eviction,
        low_water=limits.low_water,
        look_ahead=limits.look_ahead,
    )


def _scheduled(
    plan: object, limits: Limits, native: Any, driver: Driver, result: Result, verify: bool, simulated: bool
) -> ScheduledOperations | None:
    """The operations of a run that follows a schedule."""
    from ..plan.migration.files import SavedSchedule, read_schedule
    from ..plan.plans import plan_kind

    if isinstance(plan, (str, PathLike)) and plan_kind(plan) == "schedule":
        plan = read_schedule(plan)
    if not isinstance(plan, SavedSchedule):
        return None
    from .scheduled import ScheduledOperations

    if not limits.lazy:
        raise InvalidValueError("a schedule moves buffers while they are idle: it needs --lazy")
    return ScheduledOperations(native, driver, result, schedule=plan, verify=verify, simulated=simulated)


class _Run:
    def __init__(
        self,
        events: Iterable[ev.Event],
        limits: Limits,
        driver: Driver,
        native: Any,
        *,
        allocator: str,
        verify: bool,
        simulated: bool,
        progress: Callable[[int], None] | None,
        sample_every: int,
        plan: SavedLayout | SavedSchedule | str | PathLike[str] | None,
    ) -> None:
        self._source = events
        self._limits = limits
        self._driver = driver
        self._native = native
        self._simulated = simulated
        self._progress = progress
        self._sample_every = sample_every
        self._plan = plan
        self._result = Result(allocator=allocator)
        self._scheduled = _scheduled(plan, limits, native, driver, self._result, verify, simulated)
        self._operations = self._scheduled or Operations(
            self._native, driver, self._result, lazy=limits.lazy, verify=verify, simulated=simulated
        )

    def run(self) -> Result:
        result = self._result
        calls_before = self._operations.driver_calls()
        start = time.perf_counter()
        threads = HostThreads(self._driver.make_current)
        try:
            if self._scheduled is not None:
                self._scheduled.stage()
            elif self._plan is not None:
                from ..plan.playback import play

                play(self._native, cast("SavedLayout | str | PathLike[str]", self._plan))
            if self._limits.eviction == "planned":
                self._source = list(self._source)
                self._native.expect([(one.uses, one.kept, one.on_host) for one in expectations(self._source)])
            self._events(threads)
            self._operations.cancel_faults()
            if self._scheduled is not None:
                self._scheduled.finish()
            self._synchronize()
            self._measure(calls_before)
            self._finish()
        except ContextLostError:
            self._measure(calls_before)
        finally:
            threads.stop()
            self._operations.cancel_faults()
        result.wall_s = time.perf_counter() - start
        result.mismatches += self._driver.mismatches()
        if self._simulated:
            result.races = sim.race_count()
        result.ok = not (result.failed_expectations or result.mismatches or result.races)
        return result

    def _events(self, threads: HostThreads) -> None:
        events = iter(self._source)
        thread: ev.Id = 0
        while True:
            self._operations.thread = thread
            switch = threads.call(thread, lambda: self._until_switch(events))
            if switch is None:
                return
            thread = switch.thread

    def _until_switch(self, events: Iterator[ev.Event]) -> ev.Thread | None:
        operations = self._operations
        handlers = operations.handlers
        for event in events:
            operations.number += 1
            if isinstance(event, ev.Thread):
                return event
            handlers[type(event)](event)
            if self._sample_every and operations.number % self._sample_every == 0:
                self._sample()
            if self._progress is not None and operations.number % _PROGRESS_EVERY == 0:
                self._progress(operations.number)
        return None

    def _sample(self) -> None:
        statistics = self._native.statistics()
        self._result.samples.append(
            Sample(
                self._operations.number,
                self._operations.buffers.live_bytes,
                statistics["reserved_bytes.current"],
                statistics["host_bytes.current"],
            )
        )

    def _synchronize(self) -> None:
        try:
            self._driver.synchronize()
        except DriverError as error:
            self._result.add_failure(self._operations.number, f"at the end: {error}")
            raise ContextLostError from error

    def _measure(self, calls_before: dict[str, int]) -> None:
        result = self._result
        self._operations.note_peaks()
        statistics = self._native.statistics()
        if self._scheduled is not None:
            result.migrated_in_bytes, result.migrated_out_bytes = self._scheduled.moved()
        else:
            result.migrated_in_bytes = statistics["migrated_in_bytes"]
            result.migrated_out_bytes = statistics["migrated_out_bytes"]
        result.prefetched_used_bytes = statistics.get("prefetched_used_bytes", 0)
        made = {name: count - calls_before.get(name, 0) for name, count in self._operations.driver_calls().items()}
        if self._scheduled is not None:
            result.plan = self._scheduled.account()
            self._compare(result.plan)
        elif self._plan is not None:
            result.plan = self._native.plan_statistics()
        result.driver_calls = {name: count for name, count in sorted(made.items()) if count}
        if self._simulated:
            costs = sim.costs()
            result.modelled_driver_us = sum(costs.get(name, 0.0) * count for name, count in result.driver_calls.items())
        if result.peak_reserved_bytes > self._limits.device_limit:
            result.add_failure(
                self._operations.number,
                f"{result.peak_reserved_bytes} bytes were reserved, "
                f"more than the device limit of {self._limits.device_limit}",
            )

    def _compare(self, account: dict[str, int]) -> None:
        """What moved is what the schedule claims."""
        for way in ("in", "out"):
            claimed, moved = account[f"claimed_{way}_bytes"], getattr(self._result, f"migrated_{way}_bytes")
            if claimed != moved:
                message = f"{moved} bytes moved {way}, not the {claimed} that the schedule claims"
                self._result.add_failure(self._operations.number, message)

    def _finish(self) -> None:
        """Free what the trace left, and look whether everything is in order then."""
        operations = self._operations
        try:
            operations.captures.close()
            operations.free_all()
            self._driver.synchronize()
            self._native.check()
        except (*EXPECTED_ERRORS, MemxError, RuntimeError) as error:
            self._result.add_failure(operations.number, f"at the end: {error}")
