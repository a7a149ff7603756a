"""Memory that is free but for work in progress counts as room for every kind of request."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels

import memx
from memx import _native

Make = Callable[..., _native.Resource]


def free_behind_work(r: _native.Resource, kernels: Kernels, stream: int, pages: int) -> None:
    """A freed buffer whose work on a stream has not begun."""
    address = r.allocate(pages * PAGE, stream)
    memx.sim.hold(stream)
    kernels.stamp(stream, address, pages * PAGE, 7 << 32)
    r.free(address)


@pytest.mark.parametrize("stream", [0, 1], ids=["legacy", "nonblocking"])
@pytest.mark.parametrize("how", ["prefetch", "rebalance"])
def test_a_move_to_the_device_takes_it(
    resource: Make, kernels: Kernels, streams: list[int], how: str, stream: int
) -> None:
    r = resource(device=8, host=8)
    used = streams[0] if stream else 0
    filler = r.allocate(8 * PAGE, used)
    spilled = r.allocate(4 * PAGE)
    assert r.statistics()["host_bytes.current"] == 4 * PAGE
    memx.sim.hold(used)
    kernels.stamp(used, filler, 8 * PAGE, 7 << 32)
    r.free(filler)
    r.rebalance() if how == "rebalance" else r.prefetch(spilled, 0)
    assert r.statistics()["migrated_in_bytes"] == 4 * PAGE
    r.free(spilled)


def test_a_move_to_the_host_takes_it(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=4)
    a = r.allocate(4 * PAGE)
    b = r.allocate(4 * PAGE)  # on the host
    kernels.stamp(0, b, 4 * PAGE, 7 << 32)
    r.free(b)
    assert r.evict(a) == 0
    assert r.statistics()["migrated_out_bytes"] == 4 * PAGE


def test_a_resume_waits_for_it(resource: Make, kernels: Kernels, streams: list[int]) -> None:
    r = resource(device=8, host=0)
    tag = r.tag_id("weights")
    weights = r.allocate(6 * PAGE, streams[1], tag=tag)
    r.pause(tag, False)
    free_behind_work(r, kernels, streams[0], 8)
    r.resume(tag)
    kernels.stamp(streams[1], weights, 6 * PAGE, 1 << 32)
    r.free(weights)
    kernels.synchronize()


def test_a_resume_that_cannot_fit_fails_at_once(resource: Make) -> None:
    r = resource(device=8, host=0)
    tag = r.tag_id("weights")
    r.allocate(6 * PAGE, tag=tag)
    r.pause(tag, False)
    r.allocate(4 * PAGE)
    with pytest.raises(memx.OutOfMemoryError):
        r.resume(tag)
    r.check()
