"""What is known beforehand of how buffers will be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .plan.migration.problem import KEPT_TAGS
from .trace import events as ev

__all__ = ["Expectation", "expectations"]


@dataclass(slots=True)
class Expectation:
    """The uses to come of one allocation; see :meth:`memx.MemoryResource.expect`.

    Attributes
    ----------
    uses : list of (int, bool)
        Numbers of the `resident` blocks that name it, counted from the call of `expect` on, ascending; and whether that
        block only writes it, the whole of it.
    kept : bool
        Whether its contents matter after the last of them.
    on_host : bool
        Of an eager resource's buffer: born on the host.
    """

    uses: list[tuple[int, bool]] = field(default_factory=list)
    kept: bool = False
    on_host: bool = False


def expectations(events: Iterable[ev.Event]) -> list[Expectation]:
    """What a trace tells of its own allocations, in their order, if every kernel that uses some is one `resident`.

    A buffer tagged ``keep`` or ``persistent``, never freed, or checked after its last use is kept. What is to fail, and
    nothing else, is taken to.
    """
    out: list[Expectation] = []
    live: dict[ev.Id, tuple[Expectation, int]] = {}
    checked: set[ev.Id] = set()  # since their last use: reading them so is no use that memx counts
    tagged: dict[ev.Id, bool] = {}
    number = 0
    for event in events:
        if isinstance(event, ev.Alloc):
            if event.size == 0 or event.expect in ("oom", "invalid", "error"):
                continue
            expectation = Expectation(kept=True)
            live[event.id] = (expectation, event.size)
            tagged[event.id] = event.tag in KEPT_TAGS
            checked.discard(event.id)
            out.append(expectation)
        elif isinstance(event, ev.Free):
            ended = live.pop(event.id, None)
            if ended is not None:
                ended[0].kept = tagged[event.id] or event.id in checked
        elif isinstance(event, ev.Kernel) and event.expect != "invalid":
            read = {operand.id for operand in event.reads}
            names = [operand.id for operand in (*event.reads, *event.writes) if operand.id in live]
            for name in dict.fromkeys(names):
                expectation, size = live[name]
                whole = name not in read and any(
                    o.id == name and o.offset == 0 and (o.bytes is None or o.bytes >= size) for o in event.writes
                )
                expectation.uses.append((number, whole and name not in checked))
                checked.discard(name)
            number += bool(names)
        elif isinstance(event, ev.CheckContents):
            checked.add(event.id)
    return out
