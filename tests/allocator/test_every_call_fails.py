"""Work on three times the device's memory, with each driver call of it failing in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels, pattern

Make = Callable[..., _native.Resource]
READ, WRITE = 1, 2
CALLS = (
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuStreamSynchronize",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamCreate",
    "cuStreamWaitEvent",
)


class Program:
    """Ordinary and discardable buffers used in turn, a pause in between; every refusal is an error of memx's."""

    SIZES = (3, 2, 4, 3, 1, 5)  # pages; the last two are discardable

    def __init__(self, r: _native.Resource, kernels: Kernels) -> None:
        self.r, self.kernels, self.refused = r, kernels, 0
        uses = [i for step in range(12) for i in (step % 4, (step + 1) % 6)]
        r.expect([([(n, False) for n, i in enumerate(uses) if i == b], True, False) for b in range(6)])
        self.tag = r.tag_id("t")
        self.seeds: list[int | None] = [None] * 4 + [5 << 32, 6 << 32]
        self.buffers = [r.allocate(n * PAGE, 0, 0, "prefer_device", self.tag) for n in self.SIZES[:4]]
        self.buffers += [
            r.allocate(n * PAGE, refill=pattern(i + 5 << 32, n * PAGE)) for i, n in enumerate(self.SIZES[4:])
        ]

    def attempt(self, do: Callable[[], object]) -> bool:
        try:
            do()
        except memx.MemxError as error:
            assert str(error)
            self.refused += 1
            return False
        return True

    def use(self, i: int, write: bool) -> None:
        address, nbytes = self.buffers[i], self.SIZES[i] * PAGE
        token: list[int] = []
        mode = WRITE if write else READ
        if not self.attempt(lambda: token.append(self.r.begin_use([(address, 0, nbytes, mode)], 0))):
            return
        if write:
            self.seeds[i] = (self.seeds[i] or i + 1 << 32) + (16 << 32)
            self.kernels.stamp(0, address, nbytes, self.seeds[i] or 0)
        elif self.seeds[i] is not None:
            self.kernels.verify(0, address, nbytes, self.seeds[i] or 0)
        self.r.end_use(token[0])

    def run(self) -> None:
        for step in range(12):
            self.use(step % 4, write=True)
            self.use((step + 1) % 6, write=False)
            if step == 7:
                self.kernels.synchronize()
                self.attempt(lambda: self.r.pause(self.tag))
                self.attempt(lambda: self.r.resume(self.tag))
        self.attempt(self.r.trim)

    def check(self) -> None:
        self.kernels.synchronize()
        self.r.check()
        for i, seed in enumerate(self.seeds):
            if seed is None:
                continue
            out = np.empty(self.SIZES[i] * PAGE, np.uint8)
            self.r.read(self.buffers[i], 0, out)
            assert np.array_equal(out, pattern(seed, len(out))), i
            self.use(i, write=False)
        self.kernels.synchronize()
        assert self.kernels.mismatches == 0


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", ["OUT_OF_MEMORY", "UNKNOWN"])
@pytest.mark.parametrize("ahead", [0, 2])
def test_contents_are_intact_or_an_error_says_so(
    resource: Make, kernels: Kernels, call: str, code: str, ahead: int
) -> None:
    def run(at: int | None) -> tuple[int, int]:
        r = resource(device=6, host=40, lazy=True, low_water=2 * ahead * PAGE, look_ahead=ahead * PAGE)
        program = Program(r, kernels)
        before = r.statistics()["driver_calls"].get(call, 0)
        if at is not None:
            memx.sim.fail(call, at=at, code=code)
        try:
            program.run()
        finally:
            memx.sim.fail(call)
        made = r.statistics()["driver_calls"].get(call, 0) - before
        program.check()
        r.close()
        return made, program.refused

    made, refused = run(None)
    assert refused == 0
    if not made:
        pytest.skip("not called here")
    most = 24
    for at in range(1, made + 1, max(1, made // most)):
        run(at)
