"""What crosses the bus where a program runs on a device that is too small for it, by replaying its operations."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import MemxError
from ..plan.births import plan_births
from ..plan.migration.bound import relax
from ..plan.migration.problem import Migration, read_migration
from ..replay import Limits, prepare_device, replay
from ..replay.driver import Driver
from ..trace import events as ev

if TYPE_CHECKING:
    from .._native import Resource

__all__ = ["BUS_BYTES_PER_S", "WAYS", "Traffic", "traffic"]

_PAGE = 2 << 20
#: What a PCIe 4.0 link of 16 lanes carries one way. Newer ones carry twice as much.
BUS_BYTES_PER_S = 25_000_000_000
_BOUND_S = 60.0
#: Of the device, what births are planned for: pages are shared, and a plan of all of it would not quite fit.
_PLANNED_PARTS = (1.0, 0.97, 0.94, 0.9)

#: Ways to go about it, in words.
WAYS = {
    "placed": "placed at birth, as PyTorch's allocator",
    "placed_told": "placed at birth, told what costs least",
    "moved": "operands moved in, default policy",
    "moved_told": "operands moved in, told the order",
}


@dataclass(slots=True, frozen=True)
class Traffic:
    """Bytes over the bus, both ways together; None where it cannot run so, or is not known.

    Attributes
    ----------
    step : int or None
        The optimizer step that was looked at; None: the whole run.
    largest_operation_bytes : int
        What one operation needs at once. What moves needs a device larger than that.
    placed_bytes, placed_told_bytes : int or None
        Memory stays where it is put and is reached over the bus: as PyTorch's allocator; and told which allocations
        cost least on the host (:func:`memx.plan.plan_births`).
    moved_bytes, moved_told_bytes : int or None
        Operands are moved to the device before each operation: by memx's default policy; and told the order of the
        operations to come (:meth:`memx.MemoryResource.expect`).
    bound_bytes : int or None
        No policy that moves operands moves less on average, however often the step is repeated.
    """

    step: int | None
    largest_operation_bytes: int
    placed_bytes: int | None
    placed_told_bytes: int | None
    moved_bytes: int | None
    moved_told_bytes: int | None
    bound_bytes: int | None

    def ways(self) -> dict[str, int | None]:
        """Bytes by the names of :data:`WAYS`."""
        return {name: getattr(self, f"{name}_bytes") for name in WAYS}

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)


def traffic(events: Sequence[ev.Event], device_bytes: int) -> Traffic:
    """Replay in a process of its own what a device of a size would do; ``events`` have the operations."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_traffic, (events, device_bytes // _PAGE * _PAGE))


def _traffic(events: Sequence[ev.Event], device: int) -> Traffic:
    first, last, step = _window(events)
    host = 2 * sum(event.size for event in events if isinstance(event, ev.Alloc))
    host = min(host, 1 << 40) // _PAGE * _PAGE + _PAGE
    limits = Limits(device, host, _PAGE, "default", lazy=True)
    prepare_device(limits, simulate=True, contents=False)
    problem, repeats = _repeated(events, first, last)
    largest = int(read_migration(events).step_bytes.max(initial=0))
    moved = [_moved(events, limits, policy, first, last) for policy in ("cost", "planned")]
    placed = _placed(events, limits, first, last)
    told = [_placed(events, limits, first, last, int(part * device)) for part in _PLANNED_PARTS]
    placed_told = min((nbytes for nbytes in told if nbytes is not None), default=None)
    bound = None
    if largest <= device:
        bound = relax(problem, device, repeats=repeats, time_limit=_BOUND_S).lower_bound
    return Traffic(step, largest, placed, placed_told, moved[0], moved[1], bound)


def _window(events: Sequence[ev.Event]) -> tuple[int, int, int | None]:
    """A step like those that follow it: of three or more, the one before the last, whose successor policies can see."""
    steps = [number for number, event in enumerate(events) if isinstance(event, ev.Step)]
    if len(steps) < 2:
        return 0, len(events), None
    last = max(1, len(steps) - 2)
    return steps[last - 1], steps[last], last + 1


def _repeated(events: Sequence[ev.Event], first: int, last: int) -> tuple[Migration, Any]:
    """The operations of a window as a problem, and which of its objects live on in the next one like it."""
    before: dict[ev.Id, ev.Alloc] = {}
    for event in events[:first]:
        if isinstance(event, ev.Alloc):
            before[event.id] = event
        elif isinstance(event, ev.Free):
            before.pop(event.id, None)
    window = events[first:last]
    gone = {event.id for event in window if isinstance(event, ev.Free)}
    problem = read_migration([*before.values(), *window])
    names = set(before) - gone
    return problem, [name in names for name in problem.ids]


def _moved(events: Sequence[ev.Event], limits: Limits, policy: str, first: int, last: int) -> int | None:
    result = replay(events, replace(limits, eviction=policy), verify=False)
    if result.failed_expectations:  # unlike races: waits between streams are not known here
        return None
    if last == len(events):
        return result.migrated_in_bytes + result.migrated_out_bytes
    before = sum(isinstance(event, ev.Step) for event in events[:first])
    return result.moved_at_steps[before + 1] - result.moved_at_steps[before]


def _placed(events: Sequence[ev.Event], limits: Limits, first: int, last: int, planned: int = 0) -> int | None:
    """Bytes that operations reach on the host where each allocation stays where it was put, planned for some bytes."""
    from .. import _native

    driver = Driver(0)
    try:
        native = _native.Resource(0, limits.device_limit, limits.host_limit, limits.reuse, framework=True, page=_PAGE)
        try:
            if planned:
                births = plan_births(events, planned)
                native.expect([([], False, bool(on_host)) for on_host in births.on_host])
            return _reached(events, native, driver, first, last)
        except (MemxError, RuntimeError):
            return None
        finally:
            native.close()
    finally:
        driver.close()


def _reached(events: Iterable[ev.Event], native: Resource, driver: Driver, first: int, last: int) -> int:
    addresses: dict[ev.Id, int] = {}
    on_host: dict[ev.Id, int] = {}
    streams = {0: 0}
    total = 0
    for number, event in enumerate(events):
        if isinstance(event, ev.Stream):
            streams[event.stream] = driver.create_stream(blocking=False)
        elif isinstance(event, ev.Alloc) and event.size:
            address = addresses[event.id] = native.allocate(event.size, streams[event.stream])
            on_host[event.id] = native.residency(address)[1]
        elif isinstance(event, ev.Free) and event.id in addresses:
            native.free(addresses.pop(event.id))
            del on_host[event.id]
        elif isinstance(event, ev.Kernel) and first <= number < last:
            total += sum(on_host.get(operand.id, 0) for operand in (*event.reads, *event.writes))
    for address in addresses.values():
        native.free(address)
    return total
