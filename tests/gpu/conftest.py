"""The memory resource on whatever driver there is: the machine's GPU, or what ``MEMX_SIMULATE`` describes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from allocator.device import Kernels, ok
from cuda.bindings import driver

import memx
from memx import _native


@dataclass(frozen=True)
class Device:
    """What the tests run on.

    Attributes
    ----------
    page : int
        The allocator's page.
    host_mapping : bool
        Whether host memory can be mapped at device addresses.
    """

    page: int
    host_mapping: bool
    kernels: Kernels

    def free_bytes(self) -> int:
        """What the driver says is free."""
        return int(ok(driver.cuMemGetInfo()))


class WideKernels(Kernels):
    """The test kernels over a whole GPU."""

    def launch(self, name: str, stream: int, *args: int) -> None:
        kinds = (ctypes.c_uint64,) * len(args)
        ok(driver.cuLaunchKernel(self.functions[name], 1024, 1, 1, 256, 1, 1, 0, stream, (args, kinds), 0))


@pytest.fixture(scope="session")
def device() -> Device:
    """Device 0."""
    try:
        started = int(driver.cuInit(0)[0]) == 0
    except RuntimeError:  # no driver library
        started = False
    if not started:
        pytest.skip("there is no GPU")
    kernels = WideKernels()
    found = _native.probe(0)
    assert found["virtual_memory"], found["failure"]
    return Device(int(found["page_bytes"]), bool(found["host_mapping"]), kernels)


@pytest.fixture
def make(device: Device) -> Iterator[Callable[..., memx.MemoryResource]]:
    """Makes resources, and checks their invariants and that the memory of the device is back."""
    gc.collect()
    device.kernels.synchronize()
    before = device.free_bytes()
    mismatches = device.kernels.mismatches
    made: list[memx.MemoryResource] = []

    def resource(**options: object) -> memx.MemoryResource:
        made.append(memx.MemoryResource(0, **options))
        return made[-1]

    yield resource
    device.kernels.synchronize()
    gc.collect()
    for one in made:
        one.native.check()
        one.native.close()
    assert device.kernels.mismatches == mismatches
    assert device.free_bytes() >= before - 64 * device.page, "device memory is not back"
