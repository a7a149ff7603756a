"""Orders of allocations and frees that defeat PyTorch's caching allocator.

On a device of 8192 MiB it fails, holds or wastes what the first column of the table in ``docs/allocator.md`` says.
Here each runs at 1/32 of its size, pages of 2 MiB too, with no host memory, so that nothing hides on the host.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels

import memx
from memx import _native

Make = Callable[..., _native.Resource]
MIB = 1 << 20
SCALE = 32
ENDS = 4096
DEVICE = 8192 * MIB // SCALE // PAGE  # pages

pytestmark = [
    pytest.mark.parametrize("reuse", ["stream", "default", "mutual"]),
    pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"]),
]


class Program:
    """Allocates in MiB, uses what it allocates at once, and checks at the end that what lives is intact."""

    def __init__(self, make: Make, kernels: Kernels, reuse: str, lazy: bool) -> None:
        self.native = make(device=DEVICE, host=0, reuse=reuse, lazy=lazy)
        self._kernels = kernels
        self._live: dict[str, tuple[int, int, int, int]] = {}
        self._seed = 0

    def alloc(self, name: str, mib: float, stream: int = 0, tag: str | None = None) -> None:
        nbytes = int(mib * MIB / SCALE)
        address = self.native.allocate(nbytes, stream, 0, "prefer_device", self.native.tag_id(tag) if tag else 0)
        self._seed += 1
        token = self.native.begin_use([(address, 0, nbytes, 2)], stream)
        self._kernels.launch("memx_touch", stream, address, nbytes, 1)
        self._stamp(self._kernels.stamp, stream, address, nbytes, self._seed << 32)
        self.native.end_use(token)
        self._live[name] = address, nbytes, stream, self._seed << 32

    def _stamp(self, kernel: Callable[..., None], stream: int, address: int, nbytes: int, seed: int) -> None:
        """Both ends: that is where neighbours meet."""
        kernel(stream, address, ENDS, seed)
        kernel(stream, address + nbytes - ENDS, ENDS, seed + 1)

    def free(self, name: str) -> None:
        self.native.free(self._live.pop(name)[0])

    def record(self, name: str, stream: int) -> None:
        address, nbytes, on, seed = self._live[name]
        self._kernels.order(stream, on)
        self.native.note_wait(stream, on)
        token = self.native.begin_use([(address, 0, nbytes, 1)], stream)
        self._kernels.launch("memx_touch", stream, address, nbytes, 0)
        self._stamp(self._kernels.verify, stream, address, nbytes, seed)
        self.native.end_use(token)
        self.native.record_stream(address, stream)

    def reserved(self) -> int:
        return self.native.statistics()["reserved_bytes.peak"] * SCALE // MIB

    def finish(self) -> None:
        for address, nbytes, stream, seed in self._live.values():
            token = self.native.begin_use([(address, 0, nbytes, 1)], stream)
            self._stamp(self._kernels.verify, stream, address, nbytes, seed)
            self.native.end_use(token)
        self._kernels.synchronize()
        assert self._kernels.mismatches == 0
        self.native.check()


@pytest.fixture
def program(resource: Make, kernels: Kernels, reuse: str, lazy: bool) -> Program:
    return Program(resource, kernels, reuse, lazy)


def test_a_hole_between_survivors_backs_a_large_buffer(program: Program) -> None:
    program.alloc("fill", 3584)
    program.alloc("b", 4096)
    program.free("b")
    program.alloc("x", 500)
    program.alloc("y", 500)
    program.free("x")
    program.alloc("b", 4096)
    program.finish()


def test_a_split_segment_and_a_recorded_stream_at_the_first_call(program: Program, streams: list[int]) -> None:
    busy = streams[0]
    program.alloc("g", 5120)
    program.free("g")
    program.alloc("a", 4096)
    program.alloc("c", 1024)
    program.alloc("k", 2560)
    memx.sim.hold(busy)
    program.record("a", busy)
    program.free("a")
    program.alloc("b", 4096)
    program.finish()


def test_a_pool_grows_over_what_it_freed(program: Program) -> None:
    program.alloc("x", 5120, tag="pool")
    program.free("x")
    program.alloc("y", 6144, tag="pool")
    program.finish()


def test_one_stream_takes_what_another_cached(program: Program, streams: list[int]) -> None:
    s1 = streams[0]
    program.alloc("a", 4096, s1)
    program.free("a")
    program.alloc("k", 16, s1)
    program.alloc("b", 5120)
    program.finish()


def test_recorded_streams_are_reclaimed_before_a_request_fails(program: Program, streams: list[int]) -> None:
    s0, s1 = streams
    memx.sim.hold(s0)
    for i in range(8):
        program.alloc(f"a{i}", 1024, s1)
        program.record(f"a{i}", s0)
        program.free(f"a{i}")
    program.alloc("all", 8192, s1)
    program.finish()


def test_small_segments_merge_into_larger_ones(program: Program) -> None:
    for i in range(8):
        program.alloc(f"a{i}", 16)
    for i in range(8):
        program.free(f"a{i}")
    for i in range(4):
        program.alloc(f"b{i}", 32)
    assert program.reserved() <= 128 + PAGE * SCALE // MIB
    program.finish()


def test_growing_steps_leave_no_slivers(program: Program) -> None:
    for n in range(8, 33):
        for i in range(8):
            program.alloc(f"a{i}", n * 32)
        assert program.reserved() <= 1.02 * n * 32 * 8
        for i in range(8):
            program.free(f"a{i}")
    program.finish()


@pytest.mark.parametrize(("mib", "most"), [(10, 1010), (1, 105)])
def test_sizes_just_over_a_whole_number_are_not_rounded_up(
    kernels: Kernels,
    reuse: str,
    lazy: bool,
    mib: int,
    most: int,
) -> None:
    page = 2 * MIB
    r = _native.Resource(0, 1020 * MIB, 0, reuse, lazy, True, page)
    for _ in range(100):
        address = r.allocate(mib * MIB + 1)
        r.end_use(r.begin_use([(address, 0, mib * MIB + 1, 2)], 0))
    assert r.statistics()["reserved_bytes.peak"] <= most * MIB
    r.check()
    r.close()
