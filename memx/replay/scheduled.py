"""A trace run by a schedule: what it lists comes and goes before each operation, and nothing else moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import PlanError
from ..plan.migration.files import SavedSchedule
from ..plan.migration.moves import Move
from ..plan.migration.problem import READS, WRITES
from ..trace import events as ev
from .buffers import Buffer
from .driver import Driver
from .operations import Operations
from .results import Result

if TYPE_CHECKING:
    from .._native import Resource

__all__ = ["ScheduledOperations"]


class ScheduledOperations(Operations):
    """A trace's events on a lazy resource, whose buffers come and go as a schedule says.

    Every buffer has whole pages of its own, so that each moves by itself. What starts on the host is put there before
    the first event; that is no part of the schedule and counted as ``staged_bytes``.
    """

    def __init__(
        self,
        resource: Resource,
        driver: Driver,
        result: Result,
        *,
        schedule: SavedSchedule,
        verify: bool,
        simulated: bool,
    ) -> None:
        super().__init__(resource, driver, result, lazy=True, verify=verify, simulated=simulated)
        self._schedule = schedule
        self._page = resource.page_bytes()
        if any(size % self._page for size in schedule.problem.size.tolist()):
            raise PlanError(
                f"the schedule is of sizes that are no multiples of this device's pages of {self._page} bytes: "
                f"make it with --round-to {self._page}, or replay with a page of which they are"
            )
        problem = schedule.problem
        self._moves: dict[int, list[Move]] = defaultdict(list)
        for move in schedule.moves:
            self._moves[move.step].append(move)
        self._last_moves = {move.object: move for move in schedule.moves}
        self._modes: list[dict[int, int]] = [{} for _ in problem.steps]
        for o, t, mode in zip(problem.object.tolist(), problem.step.tolist(), problem.mode.tolist(), strict=True):
            self._modes[t][o] = mode
        self._number_of: dict[ev.Id, int] = {}
        self._buffer_of: dict[int, Buffer] = {}
        self._staged: dict[int, Buffer] = {}
        self._parting: dict[int, int | None] = {}  # freed by the trace, by stream, and still there
        self._allocations = 0
        self._kernels = 0
        self._staged_bytes = (0, 0)

    def stage(self) -> None:
        """Allocate what starts on the host, with contents, and have it there."""
        first_read = self._starting_on_host()
        self._resource.expect(self._expectations(first_read))
        for o in first_read:
            size = int(self._schedule.problem.size[o])
            address = self._resource.allocate(size, 0, self._page)
            buffer = self._staged[o] = Buffer(address, size, None)
            token = self._resource.begin_use([(address, 0, size, WRITES)], 0)
            self._queue([], [(buffer, 0, size)], 0)
            self._resource.end_use(token)
            self._resource.evict(address)
        self._staged_bytes = self._moved()

    def moved(self) -> tuple[int, int]:
        """Bytes in and out since everything was staged."""
        (moved_in, moved_out), (staged_in, staged_out) = self._moved(), self._staged_bytes
        return moved_in - staged_in, moved_out - staged_out

    def account(self) -> dict[str, int]:
        """What the schedule claims, and what was staged."""
        moved = self._schedule.moved
        kinds = [move.kind for move in self._schedule.moves]
        return {
            "claimed_in_bytes": moved.in_bytes,
            "claimed_out_bytes": moved.out_bytes,
            "staged_bytes": sum(self._staged_bytes),
            "prefetches": kinds.count("in"),
            "evictions": kinds.count("out") + kinds.count("drop"),
        }

    def finish(self) -> None:
        """What goes after the last operation."""
        if self._kernels != len(self._modes):
            raise PlanError(f"the schedule is of {len(self._modes)} operations, and the trace has {self._kernels}")
        self._follow(len(self._schedule.problem.steps), 0)

    def _moved(self) -> tuple[int, int]:
        statistics = self._resource.statistics()
        return statistics["migrated_in_bytes"], statistics["migrated_out_bytes"]

    def _starting_on_host(self) -> list[int]:
        first: dict[int, int] = {}
        problem = self._schedule.problem
        for o, mode in zip(problem.object.tolist(), problem.mode.tolist(), strict=True):
            first.setdefault(o, mode)
        return [o for o in sorted(first) if first[o] & READS and problem.size[o]]

    def _expectations(self, staged: list[int]) -> list[tuple[list[tuple[int, bool]], bool, bool]]:
        """The uses of each allocation to come, numbered as they will be made: staging, making and operations."""
        problem = self._schedule.problem
        uses: list[list[tuple[int, bool]]] = [[] for _ in problem.size]
        number = 0
        for o in staged:
            uses[o].append((number, True))
            number += 1
        for t, modes in enumerate(self._modes):
            for move in self._moves[t]:
                if move.kind == "make":
                    uses[move.object].append((number, True))
                    number += 1
            used = [(o, mode) for o, mode in modes.items() if problem.size[o]]
            for o, mode in used:
                uses[o].append((number, mode == WRITES))
            number += bool(used)
        first = set(staged)
        order = [*staged, *(o for o in range(len(problem.size)) if o not in first and problem.size[o])]
        return [(uses[o], bool(problem.keep[o]), False) for o in order]

    # -- events ------------------------------------------------------------------------------------------

    def _alloc(self, event: ev.Alloc) -> None:
        if event.expect not in ("ok", "any"):
            super()._alloc(event)
            return
        number = self._allocations
        self._allocations += 1
        problem = self._schedule.problem
        rounding = self._schedule.rounding
        if number >= len(problem.size) or problem.size[number] != -(-event.size // rounding) * rounding:
            raise PlanError(f"line {event.line}: the schedule was made from another trace, or with another scale")
        self._number_of[event.id] = number
        staged = self._staged.get(number)
        if staged is None:
            align = max(self._page, event.align)
            super()._alloc(replace(event, size=int(problem.size[number]), align=align, tag=None))
            buffer = self.buffers.find(event.id)
            if buffer is not None:
                self._buffer_of[number] = buffer
            return
        self.buffers.add(event.id, staged)
        self._buffer_of[number] = staged

    def _free(self, event: ev.Free) -> None:
        number = self._number_of.pop(event.id, None) if event.expect in ("ok", "any") else None
        last = None if number is None else self._last_moves.get(number)
        if last is None or last.step < self._kernels:
            super()._free(event)
            return
        # It goes when the schedule says, and is freed then: pages that a free leaves mapped would be shared later.
        self.buffers.remove(event.id)
        self._parting[last.object] = None if event.stream is None else self._stream(event.stream)

    def _kernel(self, event: ev.Kernel) -> None:
        if event.expect not in ("ok", "any"):
            super()._kernel(event)
            return
        step = self._kernels
        if step >= len(self._modes):
            raise PlanError(f"line {event.line}: the schedule was made from another trace")
        self._follow(step, self._stream(event.stream))
        self._kernels += 1
        modes = self._modes[step]
        whole = {o for o, mode in modes.items() if mode == WRITES}
        writes = [
            ev.Operand(operand.id) if self._number_of.get(operand.id) in whole else operand for operand in event.writes
        ]
        reads = [ev.Operand(name) for name in self._names(event, modes)]
        super()._kernel(replace(event, reads=tuple(reads), writes=tuple(writes)))

    def _names(self, event: ev.Kernel, modes: dict[int, int]) -> Iterable[ev.Id]:
        """The objects whose contents the step needs, whole."""
        names = dict.fromkeys(operand.id for operand in (*event.reads, *event.writes))
        return [name for name in names if modes.get(self._number_of.get(name, -1), 0) & READS]

    def _follow(self, step: int, stream: int) -> None:
        for move in self._moves[step]:
            self._do(move, stream)

    def _do(self, move: Move, stream: int) -> None:
        buffer = self._buffer_of.get(move.object) or self._staged[move.object]
        if move.kind == "in":
            self._resource.prefetch(buffer.address, stream)
        elif move.kind == "make":
            # By itself: neighbours that come together would share handles, and then go together.
            operand = (buffer.address, 0, buffer.size, WRITES)
            self._resource.end_use(self._resource.begin_use([operand], stream))
        else:
            self._resource.evict(buffer.address)
            if move.object in self._parting:
                self._resource.free(buffer.address, self._parting.pop(move.object))
