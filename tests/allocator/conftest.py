from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

import memx
from memx import _native

from .device import Kernels

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
