"""The order in which a trace allocates: what a play-back recognises a program by."""

from __future__ import annotations

from dataclasses import dataclass

from ..trace import Trace
from ..trace import events as ev

__all__ = ["AllocationOrder", "allocation_order"]


@dataclass(frozen=True)
class AllocationOrder:
    """Of the buffers of a layout, in their order.

    Attributes
    ----------
    streams : tuple of int
        The stream of each allocation, by the trace's numbers.
    steps : tuple of int
        Position of the first allocation of each step that the trace marks.
    """

    streams: tuple[int, ...]
    steps: tuple[int, ...]


def allocation_order(trace: Trace) -> AllocationOrder:
    """The order of a trace's allocations; those that are expected to fail are left out, as in a layout."""
    streams: list[int] = []
    steps: list[int] = []
    for event in trace:
        if isinstance(event, ev.Alloc) and event.expect in ("ok", "any"):
            streams.append(event.stream)
        elif isinstance(event, ev.Step) and (not steps or steps[-1] != len(streams)):
            steps.append(len(streams))
    return AllocationOrder(tuple(streams), tuple(step for step in steps if step < len(streams)))
