"""One device for the whole run: the simulated one, unless the tests marked gpu were asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from cuda.bindings import driver

import memx

DEVICE_BYTES = 1 << 30
HOST_BYTES = 4 << 30
PAGE = 64 << 10


@pytest.fixture(scope="session")
def simulated() -> None:
    """Two simulated devices of 1 GiB with pages of 64 KiB, put into this process once."""
    memx.simulate(memory=DEVICE_BYTES, host_memory=HOST_BYTES, page=PAGE, devices=2, seed=1)
    assert not driver.cuInit(0)[0]


@pytest.fixture
def oracle(simulated: None) -> Iterator[None]:
    """A test on the simulated device that must leave no race."""
    gc.collect()
    memx.sim.clear_races()
    yield
    assert memx.sim.races() == []
