"""Random use of a resource: after every step its accounting is right, and no contents are ever lost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

FAILING = (
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync",
)
KERNELS: list[Kernels] = []


class Live:
    def __init__(self, address: int, nbytes: int, stream: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.last = stream  # where it was used last
        self.seed: int | None = None
        self.filled = False  # from a source, whenever it comes to the device


class ResourceMachine(RuleBasedStateMachine):
    """Allocates, frees, uses, moves and fails; the model is a dictionary of stamped buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = KERNELS[0]
        self.live: dict[int, Live] = {}
        self.lazy = False
        self.streams = [0, self.kernels.stream(), self.kernels.stream(), self.kernels.stream(flags=0)]
        self.ids = itertools.count()
        self.seeds = itertools.count(1)
        self.before = memx.sim.usage()
        self.mismatches = self.kernels.mismatches
        self.resource: _native.Resource | None = None

    @initialize(
        device=st.integers(3, 24),
        host=st.sampled_from([0, 4, 64]),
        lazy=st.booleans(),
        reuse=st.sampled_from(["stream", "default", "mutual"]),
        eviction=st.sampled_from(["cost", "lru", "clock"]),
        low_water=st.integers(0, 6),
        look_ahead=st.integers(0, 4),
    )
    def start(
        self, device: int, host: int, lazy: bool, reuse: str, eviction: str, low_water: int, look_ahead: int
    ) -> None:
        self.device_limit, self.host_limit, self.lazy = device * PAGE, host * PAGE, lazy
        self.resource = _native.Resource(
            0,
            self.device_limit,
            self.host_limit,
            reuse,
            lazy,
            True,
            PAGE,
            eviction=eviction,
            low_water=low_water * PAGE if lazy else 0,
            look_ahead=look_ahead * PAGE if lazy else 0,
        )

    def pick(self, choice: int) -> Live | None:
        return list(self.live.values())[choice % len(self.live)] if self.live else None

    @rule(
        size=st.one_of(st.integers(0, 3000), st.integers(1, 6 * PAGE)),
        stream=st.integers(0, 3),
        align=st.sampled_from([0, 0, 4096, PAGE]),
        tagged=st.booleans(),
    )
    def allocate(self, size: int, stream: int, align: int, tagged: bool) -> None:
        try:
            tag = self.resource.tag_id("t") if tagged else 0
            address = self.resource.allocate(size, self.streams[stream], align, "prefer_device", tag)
        except memx.OutOfMemoryError:
            return
        if size == 0:
            assert address == 0
            return
        assert address % max(align, 512) == 0
        for other in self.live.values():
            assert address + size <= other.address or other.address + other.nbytes <= address
        self.live[next(self.ids)] = Live(address, size, self.streams[stream])

    @precondition(lambda self: self.lazy)
    @rule(size=st.integers(1, 6 * PAGE), stream=st.integers(0, 3), priority=st.integers(-1, 1), called=st.booleans())
    def allocate_filled(self, size: int, stream: int, priority: int, called: bool) -> None:
        seed = next(self.seeds) << 32 | 0x5EED
        contents = pattern(seed, size)

        def fill(into: memoryview, offset: int) -> None:
            into[:] = contents[offset : offset + len(into)].tobytes()

        source = fill if called else contents
        address = self.resource.allocate(size, self.streams[stream], refill=source, priority=priority)
        self.live[next(self.ids)] = one = Live(address, size, self.streams[stream])
        one.seed, one.filled = seed, True

    @rule(choice=st.integers(0, 1000))
    def free(self, choice: int) -> None:
        one = self.pick(choice)
        if one:
            self.resource.free(one.address)
            self.live = {k: v for k, v in self.live.items() if v is not one}

    @rule(
        choices=st.lists(st.integers(0, 1000), min_size=1, max_size=3),
        stream=st.integers(0, 3),
        write=st.booleans(),
    )
    def kernel(self, choices: list[int], stream: int, write: bool) -> None:
        buffers = list({id(b): b for b in (self.pick(c) for c in choices) if b}.values())
        handle = self.streams[stream]
        write = write and not any(b.filled for b in buffers)
        mode = 2 if write else 1
        try:
            token = self.resource.begin_use([(b.address, 0, b.nbytes, mode) for b in buffers], handle)
        except memx.OutOfMemoryError:
            return
        for b in buffers:
            if b.last != handle:
                self.kernels.order(handle, b.last)
                self.resource.note_wait(handle, b.last)
                b.last = handle
            self.resource.record_stream(b.address, handle)
            if b.seed is not None and not write:
                self.kernels.verify(handle, b.address, b.nbytes, b.seed)
            if write:
                b.seed = next(self.seeds) << 32 | 0x5EED
                self.kernels.stamp(handle, b.address, b.nbytes, b.seed)
        self.resource.end_use(token)

    @precondition(lambda self: self.live)
    @rule(rounds=st.integers(2, 6), write=st.booleans())
    def cycle(self, rounds: int, write: bool) -> None:
        for choice in list(range(len(self.live))) * rounds:
            self.kernel([choice], 1, write)

    @rule(choice=st.integers(0, 1000))
    def read(self, choice: int) -> None:
        one = self.pick(choice)
        if one and one.seed is not None:
            out = np.empty(one.nbytes, np.uint8)
            self.resource.read(one.address, 0, out)
            assert np.array_equal(out, pattern(one.seed, one.nbytes))

    @rule(choice=st.integers(0, 1000), out=st.booleans())
    def move(self, choice: int, out: bool) -> None:
        one = self.pick(choice)
        if one is None:
            return
        try:
            if out:
                self.resource.evict(one.address)
            else:
                self.resource.prefetch(one.address, one.last)
        except (memx.OutOfMemoryError, memx.InvalidStateError):
            pass

    @rule(keep=st.booleans())
    def trim(self, keep: bool) -> None:
        self.resource.trim(2 * PAGE if keep else 0)

    @rule()
    def rebalance(self) -> None:
        self.kernels.synchronize()
        self.resource.rebalance()

    @rule()
    def pause_and_resume(self) -> None:
        self.kernels.synchronize()
        tag = self.resource.tag_id("t")
        try:
            self.resource.pause(tag)
        except memx.OutOfMemoryError:
            return
        self.resource.check()
        self.resource.pause(tag)
        self.resource.resume(tag)
        self.resource.resume(tag)

    @precondition(lambda self: self.live)
    @rule(
        call=st.sampled_from(FAILING),
        at=st.integers(1, 4),
        what=st.sampled_from(["allocate", "kernel", "trim", "evict", "prefetch", "rebalance"]),
        size=st.integers(1, 6 * PAGE),
        choice=st.integers(0, 1000),
    )
    def fail(self, call: str, at: int, what: str, size: int, choice: int) -> None:
        one = self.pick(choice)
        if what == "rebalance":
            self.kernels.synchronize()
        memx.sim.fail(call, at=at, code="OUT_OF_MEMORY")
        try:
            if what == "allocate":
                address = self.resource.allocate(size, 0)
                self.live[next(self.ids)] = Live(address, size, 0)
            elif what == "kernel":
                self.resource.end_use(self.resource.begin_use([(one.address, 0, one.nbytes, 1)], one.last))
            elif what == "trim":
                self.resource.trim()
            elif what == "evict":
                self.resource.evict(one.address)
            elif what == "prefetch":
                self.resource.prefetch(one.address, one.last)
            else:
                self.resource.rebalance()
        except memx.MemxError as error:
            assert str(error)
        finally:
            memx.sim.fail(call)

    @rule(stream=st.integers(0, 3))
    def hold(self, stream: int) -> None:
        memx.sim.hold(self.streams[stream])

    @rule(stream=st.integers(0, 3))
    def release(self, stream: int) -> None:
        memx.sim.release(self.streams[stream])

    @invariant()
    def accounting(self) -> None:
        if self.resource is None:
            return
        self.resource.check()
        s = self.resource.statistics()
        assert s["requested_bytes.current"] == sum(b.nbytes for b in self.live.values())
        assert s["allocated_bytes.current"] == sum(-(-b.nbytes // 512) * 512 for b in self.live.values())
        assert s["requested_bytes.current"] <= s["allocated_bytes.current"] <= s["active_bytes.current"]
        assert s["reserved_bytes.peak"] <= self.device_limit
        assert s["host_bytes.peak"] <= self.host_limit
        usage = memx.sim.usage()
        assert usage["device_bytes"][0] - self.before["device_bytes"][0] == s["reserved_bytes.current"]
        host = usage["host_bytes"] - self.before["host_bytes"]
        assert host == s["host_bytes.current"]
        if not self.lazy:
            assert s["active_bytes.current"] <= s["reserved_bytes.current"] + s["host_bytes.current"]
        assert memx.sim.races() == []

    def teardown(self) -> None:
        if self.resource is None:
            return
        for stream in self.streams:
            memx.sim.release(stream)
        for one in self.live.values():
            if one.seed is not None:
                out = np.empty(one.nbytes, np.uint8)
                self.resource.read(one.address, 0, out)
                assert np.array_equal(out, pattern(one.seed, one.nbytes))
            self.resource.free(one.address)
        self.kernels.synchronize()
        assert self.kernels.mismatches == self.mismatches
        self.resource.check()
        self.resource.close()
        for stream in self.streams[1:]:
            self.kernels.destroy(stream)
        after = memx.sim.usage()
        for what in ("handles", "mappings", "reservations", "device_bytes", "host_bytes", "pinned_bytes"):
            assert after[what] == self.before[what], what


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize(
    "steps",
    [pytest.param((40, 60)), pytest.param((400, 120), marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_machine(kernels: Kernels, steps: tuple[int, int]) -> None:
    KERNELS[:] = [kernels]
    examples, count = steps
    run_state_machine_as_test(
        ResourceMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=count,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert kernels.mismatches == 0
