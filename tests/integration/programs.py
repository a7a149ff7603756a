"""Random programs that keep the rules: traces for :func:`memx.replay.replay`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from memx.replay import Limits
from memx.trace import events as ev

from .rules import Buffer, Key, Program

__all__ = ["Setting", "generate", "setting"]

TAGS = ("w", "kv")
#: Calls that memx makes and the replay does not, once it has started.
FAULTS = (
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuMemcpyAsync",
    "cuCtxRecordEvent",
)


@dataclass(frozen=True)
class Setting:
    """What a program runs with.

    Attributes
    ----------
    roomy : bool
        The host has room for all that the program allocates, so that no request need fail.
    tags, captures, faults : bool
        Whether the program pauses tags, captures streams, injects failures.
    """

    seed: int
    limits: Limits
    roomy: bool
    tags: bool
    captures: bool
    faults: bool


def setting(seed: int, page: int, reuse: str | None = None, lazy: bool | None = None) -> Setting:
    """The setting that belongs to a seed."""
    rng = random.Random(seed * 2 + 1)
    drawn_reuse, drawn_lazy = rng.choice(("stream", "default", "mutual")), rng.random() < 0.5
    device = rng.choice((6, 12, 24, 48))
    roomy = rng.random() < 0.7
    host = 512 if roomy else rng.choice((0, 4, 24))
    lazy = drawn_lazy if lazy is None else lazy
    limits = Limits(device * page, host * page, page, reuse or drawn_reuse, lazy)
    settled = Setting(seed, limits, roomy, roomy and rng.random() < 0.7, rng.random() < 0.4, rng.random() < 0.6)
    if not lazy:
        return settled
    low, ahead = rng.randint(0, device // 2), rng.randint(0, device // 2)
    # Not "planned": which of these programs' kernels fail cannot be told beforehand.
    eviction = rng.choice(("cost", "cost", "lru", "clock"))
    limits = replace(limits, low_water=low * page, look_ahead=ahead * page, eviction=eviction)
    return replace(settled, limits=limits)


def generate(plan: Setting, count: int) -> list[ev.Event]:
    """About ``count`` events; the same for the same arguments."""
    return _Generator(plan).run(count)


class _Generator:
    def __init__(self, plan: Setting) -> None:
        self._plan = plan
        self._page = plan.limits.page
        self._device_pages = plan.limits.device_limit // self._page
        self._rng = random.Random(plan.seed * 2)
        self._program = Program()
        self._events: list[ev.Event] = []
        self._names = 0
        self._free_names: list[ev.Id] = []
        self._fault: str | None = None
        self._shaken = False  # a capture or a fault may have left pages that cannot give way
        self._captured_tags: set[str | None] = set()  # lazy pages that a graph may use again do not move
        self._most_live = 3 * plan.limits.device_limit
        self._live = 0

    def run(self, count: int) -> list[ev.Event]:
        rng = self._rng
        kinds = ("blocking", "blocking", "nonblocking", "nonblocking", "nonblocking", "per_thread")
        for number, kind in enumerate(kinds, 1):
            self._emit(ev.Stream(number, kind))
        self._emit(ev.Wait(1, 2))  # the replay makes its event before any call fails
        patience = rng.choice((0.3, 1.0, 4.0))  # how soon held streams go on
        actions: list[tuple[float, Callable[[], None]]] = [
            (22, self._alloc),
            (34, self._kernel),
            (17, self._free),
            (5, self._wait),
            (3, self._record_stream),
            (4, self._hold),
            (patience, self._release),
            (0.7, self._sync),
            (2, self._thread),
            (1.5, self._trim),
            (0.7, self._rebalance),
            (2, self._check_contents),
            (0.4, lambda: self._emit(ev.ResetPeak())),
            (0.4, lambda: self._emit(ev.Step())),
            (0.5, self._refused),
        ]
        if self._plan.tags:
            actions.append((1.5, self._pause_or_resume))
        if self._plan.faults:
            actions.append((2, self._fault_begin_or_end))
        if self._plan.captures:
            actions.append((0.5, self._capture))
        weights = [weight for weight, _ in actions]
        while len(self._events) < count:
            rng.choices(actions, weights)[0][1]()
        self._finish()
        return self._events

    # -- actions -------------------------------------------------------------------------------------------

    def _alloc(self) -> None:
        rng = self._rng
        size = self._size()
        if self._live + size > self._most_live:
            return self._free()
        stream = self._stream()
        if self._program.capture is not None and stream == 0:
            return None
        if self._free_names and rng.random() < 0.5:
            name = self._free_names.pop(rng.randrange(len(self._free_names)))
        else:
            self._names += 1
            name = self._names if rng.random() < 0.5 else f"b{self._names}"
        lazy = self._plan.limits.lazy
        host_ok = rng.random() < 0.9
        sure = lazy or (self._plan.roomy and host_ok and self._fault is None and self._program.capture is None)
        tag = rng.choice(TAGS) if self._plan.tags and rng.random() < 0.3 else None
        align = rng.choice((0, 0, 0, 1, 4096, self._page, 2 * self._page))
        self._emit(ev.Alloc(name, size, stream, align, tag, host_ok, "ok" if sure else "any"))
        self._live += size
        return None

    def _size(self) -> int:
        rng = self._rng
        kind = rng.random()
        if kind < 0.02:
            return 0
        if kind < 0.45:
            return rng.randint(1, 3000)
        if kind < 0.6:
            return max(1, rng.choice((512, 1024, self._page // 2)) + rng.randint(-1, 1))
        if kind < 0.75:
            return rng.randint(1, 3) * self._page + rng.choice((0, 0, 1, -1, 512, -512))
        return rng.randint(1, max(2, self._device_pages // 3) * self._page)

    def _free(self) -> None:
        buffer = self._pick(paused=True)
        if buffer is None:
            return
        rng, program = self._rng, self._program
        stream: int | None = None
        choice = rng.random()
        if choice < 0.2 and program.is_named(buffer.key):
            stream = buffer.key[0]
        elif choice < 0.4:
            stream = self._stream()
        key = buffer.key if stream is None else program.key(stream)
        for other in program.uncovered(buffer, key):
            if program.capture is not None and not (program.is_named(other) and rng.random() < 0.5):
                return
            self._cover(buffer, key, other)
        # Another thread may be the current one by now, in which the stream's number means another stream.
        if program.uncovered(buffer, buffer.key if stream is None else program.key(stream)):
            return
        if program.capture is not None and self._plan.limits.lazy:
            self._captured_tags.add(buffer.tag)
        self._emit(ev.Free(buffer.id, stream))
        self._live -= buffer.size
        if rng.random() < 0.05:
            self._emit(ev.Free(buffer.id, None, "invalid"))
        self._free_names.append(buffer.id)

    def _cover(self, buffer: Buffer, key: Key, other: Key) -> None:
        """Let a free on ``key`` speak for the uses on ``other``."""
        rng, program = self._rng, self._program
        named = program.is_named(other)
        if named and (rng.random() < 0.5 or program.capture is not None):
            self._emit(ev.RecordStream(buffer.id, other[0]))
        elif named and program.is_named(key) and rng.random() < 0.9 and self._may_wait(key[0], other[0]):
            self._emit(ev.Wait(key[0], other[0]))
        elif named and rng.random() < 0.5:
            self._emit(ev.Sync(other[0]))
        elif not named and rng.random() < 0.7:
            here = program.thread
            self._emit(ev.Thread(other[1] if other[1] is not None else 0))
            self._emit(ev.RecordStream(buffer.id, other[0]))
            if rng.random() < 0.7:
                self._emit(ev.Thread(here))
        else:
            self._emit(ev.Sync())

    def _kernel(self) -> None:
        rng, program = self._rng, self._program
        capturing = program.capture is not None
        buffers = {b.id: b for b in (self._pick() for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))) if b}
        if not buffers:
            return
        stream = self._kernel_stream(list(buffers.values()))
        if capturing and stream != program.capture and program.is_forbidden(stream):
            return
        reads, writes = [], []
        for buffer in buffers.values():
            write = rng.random() < 0.5 or not buffer.uses
            start, end = self._part(buffer)
            if self._order(buffer, start, end, write, stream):
                whole = start == 0 and end == buffer.size
                operand = ev.Operand(buffer.id) if whole else ev.Operand(buffer.id, start, end - start)
                (writes if write else reads).append(operand)
                if write and rng.random() < 0.2:
                    reads.append(operand)
        if not reads and not writes:
            return
        if capturing and self._plan.limits.lazy:
            self._captured_tags |= {buffer.tag for buffer in buffers.values()}
        named = {operand.id for operand in reads + writes}
        pages = sum(-(-program.buffers[name].size // self._page) + 1 for name in named)
        sure = not self._plan.limits.lazy or (
            self._plan.roomy
            and not self._shaken
            and self._fault is None
            and not capturing
            and pages <= self._device_pages
        )
        self._emit(ev.Kernel(tuple(reads), tuple(writes), stream, None, "ok" if sure else "any"))

    def _kernel_stream(self, buffers: list[Buffer]) -> int:
        rng, program = self._rng, self._program
        if program.capture is not None and rng.random() < 0.6:
            return program.capture
        last = buffers[0].uses[-1].key if buffers[0].uses else buffers[0].key
        if rng.random() < 0.6 and program.is_named(last):
            return last[0]
        return self._stream()

    def _part(self, buffer: Buffer) -> tuple[int, int]:
        rng = self._rng
        if rng.random() < 0.6 or buffer.size < 2:
            return 0, buffer.size
        start = rng.randrange(buffer.size)
        return start, rng.randint(start, buffer.size)

    def _order(self, buffer: Buffer, start: int, end: int, write: bool, stream: int) -> bool:
        """Make a use come after what it conflicts with; False if that cannot be."""
        rng, program = self._rng, self._program
        if program.capture is not None and program.thread != 0 and program.kinds[stream] == "per_thread":
            return False
        key = program.key(stream)
        for other in sorted(program.unordered(buffer, start, end, write, key), key=str):
            if program.capture is not None and (not program.is_named(other) or not self._may_wait(stream, other[0])):
                return False
            if program.is_named(other) and rng.random() < 0.95:
                self._emit(ev.Wait(stream, other[0]))
            elif program.is_named(other):
                self._emit(ev.Sync(other[0]) if program.capture is None else ev.Wait(stream, other[0]))
            elif rng.random() < 0.7:
                self._emit(ev.Sync())
            else:
                return False
        return not program.unordered(buffer, start, end, write, key)

    def _may_wait(self, stream: int, on: int) -> bool:
        return not (self._program.is_forbidden(stream) or self._program.is_forbidden(on))

    def _wait(self) -> None:
        stream, on = self._stream(), self._stream()
        if stream != on and self._may_wait(stream, on):
            self._emit(ev.Wait(stream, on))

    def _record_stream(self) -> None:
        buffer = self._pick(paused=True)
        if buffer:
            self._emit(ev.RecordStream(buffer.id, self._stream()))

    def _hold(self) -> None:
        stream = self._stream()
        if not self._program.is_forbidden(stream):
            self._emit(ev.Hold(stream))

    def _release(self) -> None:
        stream = self._stream()
        if not self._program.is_forbidden(stream):
            self._emit(ev.Release(stream))

    def _sync(self) -> None:
        if self._program.capture is None:
            self._emit(ev.Sync(self._stream() if self._rng.random() < 0.7 else None))

    def _thread(self) -> None:
        thread = self._rng.choice((0, 1, 2, "t"))
        if thread != self._program.thread:
            self._emit(ev.Thread(thread))

    def _trim(self) -> None:
        if self._program.capture is None:
            self._emit(ev.Trim())

    def _rebalance(self) -> None:
        # A failure that repeats may hit the rollback too, and then contents are lost.
        single = self._fault in ("cuMemMap", "cuMemCreate", "cuMemUnmap")
        if self._program.capture is None and (self._fault is None or single):
            self._emit(ev.Rebalance())

    def _check_contents(self) -> None:
        buffer = self._pick(paused=True)
        copies = self._fault is not None and (self._fault.startswith("cuMemcpy") or "Event" in self._fault)
        if buffer is not None and self._program.capture is None and not copies:
            self._emit(ev.CheckContents(buffer.id))

    def _refused(self) -> None:
        self._names += 1
        size = self._rng.choice((-1, -(1 << 70), (1 << 64) - 100, 1 << 63, 1 << 80))
        if self._program.capture is None or self._program.kinds[self._program.capture] == "nonblocking":
            self._emit(ev.Alloc(f"x{self._names}", size, 0, expect="error"))

    def _pause_or_resume(self) -> None:
        if self._program.capture is not None or self._fault is not None:
            return
        tag = self._rng.choice(TAGS)
        if tag in self._captured_tags:
            return
        paused = any(b.paused for b in self._program.buffers.values() if b.tag == tag)
        if paused and self._rng.random() < 0.8:
            self._emit(ev.Resume(tag))
        else:
            self._emit(ev.Pause(tag, self._rng.random() < 0.8))

    def _fault_begin_or_end(self) -> None:
        rng = self._rng
        if self._fault is not None:
            return self._end_fault()
        if self._program.capture is not None:
            return None
        self._fault = rng.choice(FAULTS)
        code = rng.choice(("OUT_OF_MEMORY", "OUT_OF_MEMORY", "NOT_PERMITTED"))
        if self._fault == "cuCtxRecordEvent":
            code = "NOT_SUPPORTED"
        how = rng.random()
        if how < 0.6:
            self._emit(ev.Fail(self._fault, at=rng.randint(1, 6), code=code))
        elif how < 0.8:
            self._emit(ev.Fail(self._fault, every=rng.randint(2, 5), code=code))
        else:
            self._emit(ev.Fail(self._fault, probability=rng.choice((0.1, 0.5)), code=code))
        if code != "OUT_OF_MEMORY" or how >= 0.6:
            self._fault += "!"  # more than one call out of memory, which a rebalance takes for an answer
        self._shaken = True
        return None

    def _end_fault(self) -> None:
        assert self._fault is not None
        self._emit(ev.Fail(self._fault.rstrip("!"), probability=0.0))
        self._fault = None

    def _capture(self) -> None:
        rng, program = self._rng, self._program
        if program.capture is not None:
            if program.thread != 0:
                self._emit(ev.Thread(0))
            self._emit(ev.Capture("abort" if rng.random() < 0.2 else "end", program.capture))
            return
        if self._fault is not None:
            return
        if program.thread != 0:
            self._emit(ev.Thread(0))
        stream = rng.choice([n for n in program.kinds if n])
        self._shaken = True
        if rng.random() < 0.3:
            self._emit(ev.Capture("release", stream))
        self._emit(ev.Capture("begin", stream))
        for _ in range(rng.randint(1, 12)):
            rng.choice((self._alloc, self._kernel, self._kernel, self._free, self._thread, self._record_stream))()
        self._capture()

    def _finish(self) -> None:
        """Free everything, and find nothing left."""
        program = self._program
        if program.capture is not None:
            self._capture()
        if self._fault is not None:
            self._end_fault()
        self._emit(ev.Sync())
        for buffer in list(program.buffers.values()):
            self._emit(ev.Free(buffer.id))
        self._emit(ev.Sync())
        for stat in ("requested_bytes.current", "allocated_bytes.current"):
            self._emit(ev.Check(stat, equals=0))
        self._emit(ev.Trim())
        self._emit(ev.Sync())
        self._emit(ev.Trim())
        if not any(isinstance(event, ev.Capture) for event in self._events):
            for stat in ("active_bytes.current", "reserved_bytes.current", "host_bytes.current"):
                self._emit(ev.Check(stat, equals=0))

    # -- choices -------------------------------------------------------------------------------------------

    def _pick(self, paused: bool = False) -> Buffer | None:
        buffers = self._program.buffers
        if not buffers:
            return None
        names = list(buffers)
        # The youngest are used most.
        at = max(self._rng.randrange(len(names)), self._rng.randrange(len(names)))
        buffer = buffers[names[at]]
        return buffer if paused or not buffer.paused else None

    def _stream(self) -> int:
        return self._rng.choice(list(self._program.kinds))

    def _emit(self, event: ev.Event) -> None:
        self._program.apply(event)
        self._events.append(event)
