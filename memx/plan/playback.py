"""Plans at run time: a resource serves a repeating sequence of allocations from planned places."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from types import TracebackType

from .. import _native
from ..errors import PlanError
from ..resource import MemoryResource
from .plans import SavedLayout, read_layout

__all__ = ["Playback", "play", "use"]

_ANY_STREAM = -1
PlanLike = SavedLayout | str | PathLike[str]


class Playback:
    """A resource's plans in use, until closed; also a context manager.

    What the plans do not foresee is served by the resource's pool, without harm, and counted.
    """

    def __init__(self, native: _native.Resource) -> None:
        self._native = native

    def step(self, plan: int | None = None) -> None:
        """Say that a step begins.

        Without being told, a repetition is recognised by its allocations, later where a step departed from its plan.

        Parameters
        ----------
        plan : int, optional
            Which of several plans the step follows, in the order given to :func:`use`. Otherwise it is found out at the
            first allocation that tells them apart, and what came before it lies where another plan has it.
        """
        self._native.begin_step(plan)

    def statistics(self) -> dict[str, int]:
        """Counts of allocations.

        ``served``: at their planned places; ``departed``: not in the plan there; ``blocked``: planned where something
        is alive still, or not ordered before the allocation's stream. ``arena_bytes`` are held for the plans.
        """
        return self._native.plan_statistics()

    def close(self) -> None:
        """Plan nothing more; the arena's memory becomes ordinary as its buffers are freed."""
        self._native.stop_plans()

    def __enter__(self) -> Playback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def use(mr: MemoryResource, plans: PlanLike | Iterable[PlanLike]) -> Playback:
    """Serve a resource's allocations from planned layouts, where it allocates as the plans' traces did.

    The k-th allocation of a step goes to the k-th buffer's place if its size and stream are the plan's, and only if
    everything that was there is freed and ordered before its stream: a plan is checked, not trusted. Several plans,
    such as one for each sequence length, lie over each other in one arena, as large as the highest of them.

    Parameters
    ----------
    mr : MemoryResource
        Not a lazy one: its memory is placed page by page as it is used.
    plans : plan or iterable of plans
        Files that ``memx plan -o plan.json`` wrote, or what :func:`read_layout` returned.

    Returns
    -------
    Playback

    Raises
    ------
    PlanError
        A file is no plan, or a plan does not hold.
    OutOfMemoryError
        The arena does not fit the device's limit.
    InvalidStateError
        The resource is lazy, or has plans in use.
    """
    return play(mr.native, plans)


def play(native: _native.Resource, plans: PlanLike | Iterable[PlanLike]) -> Playback:
    """As :func:`use`, for the core's resource."""
    listed = [plans] if isinstance(plans, (SavedLayout, str, PathLike)) else list(plans)
    if not listed:
        raise PlanError("no plan to use")
    native.use_plans([_allocations(p if isinstance(p, SavedLayout) else read_layout(p)) for p in listed])
    return Playback(native)


def _allocations(plan: SavedLayout) -> tuple[list[tuple[int, int, int]], int]:
    """(bytes, offset, stream) of each allocation in order, and where the step that repeats begins."""
    order = plan.order
    out: list[tuple[int, int, int]] = []
    repeat_from = 0
    for i, (nbytes, offset) in enumerate(zip(plan.buffers.size.tolist(), plan.offsets.tolist(), strict=True)):
        if order and order.steps and i == order.steps[-1]:
            repeat_from = len(out)
        if nbytes:
            out.append((nbytes, offset, order.streams[i] if order else _ANY_STREAM))
    return out, min(repeat_from, max(0, len(out) - 1))
