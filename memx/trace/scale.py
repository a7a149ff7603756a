"""Shrinking a trace's sizes, so that a large model's step runs with real contents in little memory."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from . import events as ev

__all__ = ["GRAIN", "scale_event", "scale_size"]

#: Scaled sizes are multiples of this many bytes.
GRAIN = 512
_BEYOND_ANY_DEVICE = 1 << 63


def scale_size(nbytes: int, factor: Fraction) -> int:
    """``nbytes * factor`` rounded up to :data:`GRAIN`; what no device could have is left as it is."""
    if nbytes < 0 or nbytes >= _BEYOND_ANY_DEVICE:
        return nbytes
    return -(-nbytes * factor.numerator // (factor.denominator * GRAIN)) * GRAIN


def _scale_operand(operand: ev.Operand, factor: Fraction) -> ev.Operand:
    if operand.offset == 0 and operand.bytes is None:
        return operand
    start = scale_size(operand.offset, factor)
    if operand.bytes is None:
        return ev.Operand(operand.id, start)
    # Both ends by one rule: parts that did not overlap still do not, though a small one may become empty.
    return ev.Operand(operand.id, start, scale_size(operand.offset + operand.bytes, factor) - start)


def _is_bytes(stat: str) -> bool:
    return "_bytes" in stat and not stat.startswith("driver_calls.")


def scale_event(event: ev.Event, factor: Fraction) -> ev.Event:
    """The event with its sizes scaled."""
    if isinstance(event, ev.Alloc):
        return replace(event, size=scale_size(event.size, factor))
    if isinstance(event, ev.Kernel):
        return replace(
            event,
            reads=tuple([_scale_operand(operand, factor) for operand in event.reads]),
            writes=tuple([_scale_operand(operand, factor) for operand in event.writes]),
        )
    if isinstance(event, ev.Check) and _is_bytes(event.stat):
        return replace(
            event,
            equals=None if event.equals is None else scale_size(event.equals, factor),
            max=None if event.max is None else scale_size(event.max, factor),
            min=None if event.min is None else scale_size(event.min, factor),
        )
    return event
