"""Two devices: who reaches whose memory, and copies between those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from .alone import alone
from .api import DEVICE, READ, Kernels, Range, access, call, code, pattern, properties, read, write

ACCESS_SUPPORTED = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED


@dataclass(frozen=True)
class Pair:
    """The contexts of devices 0 and 1."""

    first: Any
    second: Any

    @contextmanager
    def on_second(self) -> Iterator[None]:
        call("cuCtxSetCurrent", self.second)
        yield
        call("cuCtxSynchronize")
        call("cuCtxSetCurrent", self.first)


@pytest.fixture
def pair(device: Any) -> Iterator[Pair]:
    if call("cuDeviceGetCount") < 2:
        pytest.skip("needs two devices")
    yield Pair(device.context, call("cuDevicePrimaryCtxRetain", 1))
    call("cuCtxSetCurrent", device.context)
    call("cuDevicePrimaryCtxRelease", 1)


@pytest.fixture
def peers(pair: Pair) -> Pair:
    if not (call("cuDeviceCanAccessPeer", 0, 1) and call("cuDeviceCanAccessPeer", 1, 0)):
        pytest.skip("needs two devices that reach each other")
    return pair


def test_who_can_be_a_peer(pair: Pair) -> None:
    """cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute: of two devices that exist."""
    assert call("cuDeviceCanAccessPeer", 0, 1) == call("cuDeviceGetP2PAttribute", ACCESS_SUPPORTED, 0, 1)
    assert code("cuDeviceCanAccessPeer", 0, 1000) == "INVALID_DEVICE"
    assert code("cuDeviceGetP2PAttribute", ACCESS_SUPPORTED, 0, 0) == "INVALID_DEVICE"


def test_access_is_enabled_and_disabled_once(peers: Pair) -> None:
    """cuCtxEnablePeerAccess, cuCtxDisablePeerAccess: with errors for a second time, bad contexts and bad flags."""
    assert code("cuCtxDisablePeerAccess", peers.second) == "PEER_ACCESS_NOT_ENABLED"
    assert code("cuCtxEnablePeerAccess", peers.first, 0) == "INVALID_CONTEXT"
    assert code("cuCtxEnablePeerAccess", peers.second, 1) == "INVALID_VALUE"
    call("cuCtxEnablePeerAccess", peers.second, 0)
    assert code("cuCtxEnablePeerAccess", peers.second, 0) == "PEER_ACCESS_ALREADY_ENABLED"
    with peers.on_second():  # it goes one way
        assert code("cuCtxDisablePeerAccess", peers.first) == "PEER_ACCESS_NOT_ENABLED"
    call("cuCtxDisablePeerAccess", peers.second)
    assert code("cuCtxDisablePeerAccess", peers.second) == "PEER_ACCESS_NOT_ENABLED"


def test_allocations_of_a_peer_are_reached(peers: Pair, kernels: Kernels, page: int) -> None:
    """cuCtxEnablePeerAccess: all allocations of the peer, those made later too."""
    with peers.on_second():
        early = int(call("cuMemAlloc", page))
    call("cuCtxEnablePeerAccess", peers.second, 0)
    with peers.on_second():
        late = int(call("cuMemAlloc", page))
    for va, seed in ((early, 1 << 32), (late, 2 << 32)):
        kernels("memx_stamp", 0, va, page, seed, 0)
        call("cuCtxSynchronize")
        with peers.on_second():
            assert (read(va, page) == pattern(page, seed)).all()
            call("cuMemFree", va)
    call("cuCtxDisablePeerAccess", peers.second)


def test_a_mapping_is_reached_by_whom_it_is_granted_to(peers: Pair, kernels: Kernels, page: int) -> None:
    """cuMemSetAccess: a device location other than the memory's own."""
    va = int(call("cuMemAddressReserve", page, 0, 0, 0))
    handle = call("cuMemCreate", page, properties(DEVICE, 1), 0)
    call("cuMemMap", va, page, 0, handle, 0)
    call("cuMemSetAccess", va, page, [access(DEVICE, 0), access(DEVICE, 1, READ)], 2)
    kernels("memx_stamp", 0, va, page, 3 << 32, 0)
    call("cuCtxSynchronize")
    with peers.on_second():
        assert (read(va, page) == pattern(page, 3 << 32)).all()
    call("cuMemUnmap", va, page)
    call("cuMemRelease", handle)
    call("cuMemAddressFree", va, page)


def test_what_is_not_granted_is_not_reached(device: Any, peers: Pair) -> None:
    """CUDA_ERROR_ILLEGAL_ADDRESS: a kernel that touches a peer's memory without access to it."""
    answers = alone(
        device,
        """
second = call("cuDevicePrimaryCtxRetain", 1)
call("cuCtxSetCurrent", second)
va = int(call("cuMemAlloc", page))
call("cuCtxSetCurrent", context)
kernels("memx_fill", s, va, page, 1)
answer(code("cuCtxSynchronize"))
""",
        devices=2,
    )
    assert answers == ["ILLEGAL_ADDRESS"]


@pytest.mark.parametrize("function", ["cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpyDtoD", "cuMemcpyAsync"])
def test_copies_between_devices_need_no_access(function: str, pair: Pair, page: int) -> None:
    """cuMemcpyPeer, and copies of unified addresses: between allocations of two devices, whoever reaches whom."""
    data = np.random.default_rng(5).integers(0, 256, page, np.uint8)
    here = int(call("cuMemAlloc", page))
    with pair.on_second():
        there = int(call("cuMemAlloc", page))
    write(here, data)
    stream = [0] if function.endswith("Async") else []
    if "Peer" in function:
        call(function, there, pair.second, here, pair.first, page, *stream)
    else:
        call(function, there, here, page, *stream)
    call("cuCtxSynchronize")
    with pair.on_second():
        assert (read(there, page) == data).all()
        call("cuMemFree", there)
    call("cuMemFree", here)


def test_copies_between_mappings_of_two_devices(pair: Pair, page: int) -> None:
    """cuMemcpyPeerAsync: each side reachable in its own context."""
    data = np.random.default_rng(6).integers(0, 256, page, np.uint8)
    with Range(page, (DEVICE, 1)) as here:
        there = int(call("cuMemAddressReserve", page, 0, 0, 0))
        handle = call("cuMemCreate", page, properties(DEVICE, 1), 0)
        call("cuMemMap", there, page, 0, handle, 0)
        call("cuMemSetAccess", there, page, [access(DEVICE, 1)], 1)
        write(here.va, data)
        call("cuMemcpyPeerAsync", there, pair.second, here.va, pair.first, page, 0)
        call("cuCtxSynchronize")
        with pair.on_second():
            assert (read(there, page) == data).all()
        call("cuMemUnmap", there, page)
        call("cuMemRelease", handle)
        call("cuMemAddressFree", there, page)


def test_copies_name_contexts_that_exist(device: Any, page: int) -> None:
    """cuMemcpyPeer: INVALID_CONTEXT."""
    if not device.simulated:
        pytest.skip("undefined where it is not refused")
    with Range(page, (DEVICE, 1)) as r:
        gone = driver.CUcontext(4096)
        assert code("cuMemcpyPeer", r.va, gone, r.va, device.context, 4) == "INVALID_CONTEXT"
        assert code("cuMemcpyPeer", r.va, device.context, r.va, gone, 4) == "INVALID_CONTEXT"
