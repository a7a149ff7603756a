"""When even a rollback fails: the contents that are lost are named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from allocator.conftest import PAGE
from allocator.device import Kernels, pattern

import memx
from memx import _native

Make = Callable[..., _native.Resource]


@pytest.mark.parametrize("how", ["evict", "prefetch", "rebalance"])
def test_a_move_that_cannot_be_undone_is_an_error_not_a_surprise(resource: Make, kernels: Kernels, how: str) -> None:
    r = resource(device=8, host=8)
    filler = r.allocate(7 * PAGE) if how != "evict" else 0
    lost, kept = r.allocate(2 * PAGE), r.allocate(PAGE)
    kernels.stamp(0, kept, PAGE, 1 << 32)
    kernels.synchronize()
    if filler:
        assert r.statistics()["host_bytes.current"] >= 2 * PAGE
        r.free(filler)
        kernels.synchronize()
    memx.sim.fail("cuMemMap", start=2, code="OUT_OF_MEMORY")  # all but the copy's first place
    try:
        with pytest.raises(memx.DriverError, match="contents lost"):
            {"evict": r.evict, "prefetch": lambda a: r.prefetch(a, 0), "rebalance": lambda _: r.rebalance()}[how](lost)
    finally:
        memx.sim.fail("cuMemMap")
    r.check()
    out = np.empty(PAGE, np.uint8)
    for use in (lambda: r.read(lost, 0, out), lambda: r.begin_use([(lost, 0, 1, 1)], 0)):
        with pytest.raises(memx.InvalidStateError, match="lost"):
            use()
    r.read(kept, 0, out)
    assert np.array_equal(out, pattern(1 << 32, PAGE))
    r.free(lost)
    r.check()
    kernels.synchronize()
    r.free(kept)
    kernels.synchronize()
    r.trim()
    s = r.statistics()
    assert (s["reserved_bytes.current"], s["host_bytes.current"]) == (0, 0)
