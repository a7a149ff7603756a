from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import memx

from .machine import NON_BLOCKING, Kernels, call, code, set_current


@pytest.fixture(scope="session")
def kernels(simulated: None) -> Kernels:
    set_current()
    return Kernels()


@pytest.fixture
def clean(kernels: Kernels) -> Iterator[None]:
    """Device 0 is current, no race is known; afterwards what was made is gone."""
    set_current()
    call("cuCtxSynchronize")
    memx.sim.clear_races()
    before = memx.sim.usage()
    yield
    call("cuCtxSynchronize")
    after = memx.sim.usage()
    memx.sim.clear_races()
    for what in ("device_bytes", "handles", "mappings", "reservations", "streams", "pinned_bytes"):
        assert after[what] == before[what], what


@pytest.fixture
def no_races(clean: None) -> Iterator[None]:
    yield
    call("cuCtxSynchronize")
    assert memx.sim.races() == []


class Streams(AbstractContextManager["Streams"]):
    """Makes streams and events, and destroys them."""

    def __init__(self) -> None:
        self._made: list[tuple[str, Any]] = []

    def blocking(self) -> Any:
        return self._keep("cuStreamDestroy", call("cuStreamCreate", 0))

    def nonblocking(self) -> Any:
        return self._keep("cuStreamDestroy", call("cuStreamCreate", NON_BLOCKING))

    def event(self, flags: int = 0) -> Any:
        return self._keep("cuEventDestroy", call("cuEventCreate", flags))

    def order(self, first: Any, then: Any) -> None:
        """What is queued on `then` from now on follows what `first` has now."""
        event = self.event()
        call("cuEventRecord", event, first)
        call("cuStreamWaitEvent", then, event, 0)

    def _keep(self, end: str, made: Any) -> Any:
        self._made.append((end, made))
        return made

    def __exit__(self, *_: object) -> None:
        for end, made in self._made:
            code(end, made)


@pytest.fixture
def streams(clean: None) -> Iterator[Streams]:
    with Streams() as made:
        yield made


@pytest.fixture
def runtime(clean: None) -> ctypes.CDLL:
    """The simulated CUDA runtime, with no error remembered."""
    library = ctypes.CDLL("libcudart.so.13")
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    library.cudaGetLastError()
    return library
