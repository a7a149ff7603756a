"""The same tests on the simulated device and, marked gpu, on the machine's.

A process has one driver: the simulated tests run unless ``-m gpu`` asks for the others. With ``MEMX_SIMULATE`` set,
``-m gpu`` runs on the simulated device that it describes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from cuda.bindings import driver

import memx

from . import api
from .api import DEVICE, HOST, HOST_NUMA, MINIMUM, NON_BLOCKING, Kernels, Range, call, code, properties


@dataclass(frozen=True)
class Device:
    """What the tests run on.

    Attributes
    ----------
    context : CUcontext
        The primary context of device 0.
    page : int
        Bytes that are a multiple of the granularity of every location.
    host_kinds : tuple
        The host locations that memory can be made at and granted to the device.
    """

    context: Any
    page: int
    host_kinds: tuple[Any, ...]
    simulated: bool


@pytest.fixture(
    scope="session",
    autouse=True,
    params=["simulated", pytest.param("gpu", marks=pytest.mark.gpu)],
)
def device(request: pytest.FixtureRequest, record_testsuite_property: Callable[[str, object], None]) -> Device:
    """Device 0 of the driver that was asked for."""
    if request.param == "simulated":
        request.getfixturevalue("simulated")
    elif memx.sim.active() and not os.environ.get("MEMX_SIMULATE"):
        pytest.skip("the simulated driver is in this process; ask for -m gpu alone")
    elif not _starts():
        pytest.skip("there is no GPU")
    context = api.start()
    kinds = tuple(kind for kind in (HOST, HOST_NUMA) if _mappable(kind))
    page = max(int(call("cuMemGetAllocationGranularity", properties(kind), MINIMUM)) for kind in (DEVICE, *kinds))
    name = call("cuDeviceGetName", 64, 0).partition(b"\0")[0].decode().strip()
    record_testsuite_property("device", name)
    record_testsuite_property("driver", call("cuDriverGetVersion"))
    record_testsuite_property("host_kinds", ", ".join(kind.name for kind in kinds))
    return Device(context, page, kinds, memx.sim.active())


def _starts() -> bool:
    try:
        return int(driver.cuInit(0)[0]) == 0
    except RuntimeError:  # no driver library
        return False


def _mappable(kind: Any) -> bool:
    try:
        page = int(call("cuMemGetAllocationGranularity", properties(kind), MINIMUM))
        with Range(page, (kind, 1)):
            return True
    except api.DriverError:
        return False


@pytest.fixture(autouse=True)
def isolated_test(device: Device, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """The context is current and idle; what the driver refused goes into the report."""
    call("cuCtxSetCurrent", device.context)
    call("cuCtxSynchronize")
    api.refusals.clear()
    yield
    call("cuCtxSetCurrent", device.context)
    call("cuCtxSynchronize")
    record_property("refusals", " ".join(f"{function}:{name}" for function, name in api.refusals))


@pytest.fixture
def page(device: Device) -> int:
    return device.page


@pytest.fixture(params=[HOST, HOST_NUMA], ids=["host", "host_numa"])
def host_kind(device: Device, request: pytest.FixtureRequest) -> Any:
    """A host location that the device can reach."""
    if request.param not in device.host_kinds:
        pytest.skip("this driver maps no such memory")
    return request.param


@pytest.fixture(scope="session")
def kernels(device: Device) -> Kernels:
    return Kernels()


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

    def recorded(self, stream: Any) -> Any:
        """An event that stands for what the stream has now."""
        event = self.event()
        call("cuEventRecord", event, stream)
        return event

    def order(self, first: Any, then: Any) -> None:
        """What is queued on `then` from now on follows what `first` has now."""
        call("cuStreamWaitEvent", then, self.recorded(first), 0)

    def _keep(self, end: str, made: Any) -> Any:
        self._made.append((end, made))
        return made

    def __exit__(self, *_: object) -> None:
        for end, made in self._made:
            code(end, made)


@pytest.fixture
def streams() -> Iterator[Streams]:
    with Streams() as made:
        yield made
