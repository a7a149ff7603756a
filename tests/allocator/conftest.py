from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import memx
from memx import _native

from .device import Kernels, pattern

PAGE = 64 << 10


@pytest.fixture(scope="session")
def kernels(simulated: None) -> Kernels:
    return Kernels()


@pytest.fixture
def resource(kernels: Kernels, oracle: None) -> Iterator[Callable[..., _native.Resource]]:
    """Makes resources whose sizes are in pages of 64 KiB, and checks that they leave nothing behind."""
    gc.collect()
    before = memx.sim.usage()
    made: list[_native.Resource] = []

    def make(device: int = 16, host: int = 32, **options: object) -> _native.Resource:
        made.append(_native.Resource(0, device * PAGE, host * PAGE, page=PAGE, **options))
        return made[-1]

    yield make
    for one in made:
        one.check()
        one.close()
    kernels.synchronize()
    after = memx.sim.usage()
    for what in (
        "handles",
        "mappings",
        "reservations",
        "device_bytes",
        "host_bytes",
        "pinned_bytes",
        "streams",
    ):
        assert after[what] == before[what], what


def give_to(r: _native.Resource, kernels: Kernels, stream: int) -> None:
    """The device's memory goes to another stream, whose contents must last."""
    y = r.allocate(2 * PAGE, stream)
    kernels.stamp(stream, y, 2 * PAGE, 2 << 32)
    kernels.synchronize()
    out = np.empty(2 * PAGE, np.uint8)
    r.read(y, 0, out)
    assert np.array_equal(out, pattern(2 << 32, 2 * PAGE))
    r.free(y)
