"""What each allocator makes of an estimated program's allocations, by replaying them without contents."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import InvalidStateError
from ..replay import Limits, prepare_device, replay
from ..replay.smallest import smallest_pages
from ..replay.torch_allocator import SETTINGS, set_up
from ..trace import Trace
from ..trace import events as ev

__all__ = ["ALLOCATORS", "Needs", "needs"]

ALLOCATORS = ("torch-native", "torch-expandable", "memx")
_PAGE = 2 << 20
_PLENTY = 1 << 40


@dataclass(slots=True, frozen=True)
class Needs:
    """What one allocator needs of a device.

    Attributes
    ----------
    reserved_bytes : int
        Held at most, with all the memory it wants.
    smallest_bytes : int
        The smallest device on which nothing fails, in steps of 2 MiB.
    spilled_bytes : int or None
        On the device asked about, with host memory: what lives there at most. None if nobody asked, or it fails.
    """

    reserved_bytes: int
    smallest_bytes: int
    spilled_bytes: int | None = None


def needs(trace: str, allocator: str, device_bytes: int | None) -> Needs:
    """Replay in a process of its own.

    Raises
    ------
    InvalidStateError
        The allocator is PyTorch's, and PyTorch's CUDA build is not there.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_needs, (trace, allocator, device_bytes))


def _needs(path: str, allocator: str, device_bytes: int | None) -> Needs:
    if allocator in SETTINGS:
        set_up(allocator)
    trace = Trace(path)
    live = trace.peak_live_bytes()
    events = [event for event in trace if not isinstance(event, ev.Kernel)]
    first_try = 2 * live + (64 << 20)
    most = max(first_try, device_bytes or 0)
    prepare_device(Limits(_pages(most), _pages(2 * live), _PAGE, "default", False), simulate=True, contents=False)
    reserved, ok, _ = _once(events, allocator, first_try)
    if not ok:
        raise InvalidStateError(f"{allocator} fails on a device of twice the peak")
    smallest = smallest_pages(
        lambda pages: _once(events, allocator, pages * _PAGE)[1], live // _PAGE - 1, -(-reserved // _PAGE)
    )
    spilled = None
    if allocator == "memx" and device_bytes is not None and device_bytes >= _PAGE:
        _, ok, host = _once(events, allocator, device_bytes // _PAGE * _PAGE, _pages(2 * live))
        spilled = host if ok else None
    return Needs(reserved, smallest * _PAGE, spilled)


def _once(events: Iterable[ev.Event], allocator: str, device: int, host: int = 0) -> tuple[int, bool, int]:
    limits = Limits(_pages(device), host, _PAGE, "default", False)
    result = replay(events, limits, allocator=allocator, framework=True, verify=False)
    return result.peak_reserved_bytes, result.ok, result.peak_host_bytes


def _pages(nbytes: int) -> int:
    return min(_PLENTY, -(-nbytes // _PAGE) * _PAGE)
