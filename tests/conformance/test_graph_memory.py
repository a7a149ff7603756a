"""Memory that belongs to a graph: addresses fixed at capture, memory from the allocating node to the free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from .api import DEVICE, REFUSED, Kernels, call, code, location, pattern, read
from .conftest import Streams

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
AUTO_FREE = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
USED = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
USED_HIGH = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH
RESERVED = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
ALLOCATES = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC
FREES = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_FREE
BYTES = 1 << 20


class Graph(AbstractContextManager["Graph"]):
    """What a stream records in the block, and its executable graph."""

    def __init__(self, stream: Any, flags: int = 0) -> None:
        self._stream, self._flags = stream, flags
        self.graph: Any = None
        self.executable: Any = None

    def __enter__(self) -> Graph:
        call("cuStreamBeginCapture", self._stream, RELAXED)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        answer, graph = driver.cuStreamEndCapture(self._stream)
        if kind is None:
            assert int(answer) == 0
            self.graph = graph
            self.executable = call("cuGraphInstantiate", graph, self._flags)

    def launch(self, stream: Any = None) -> str:
        return code("cuGraphLaunch", self.executable, self._stream if stream is None else stream)

    def close(self) -> None:
        for name in ("executable", "graph"):
            if getattr(self, name) is not None:
                call("cuGraphExecDestroy" if name == "executable" else "cuGraphDestroy", getattr(self, name))
                setattr(self, name, None)


@pytest.fixture
def record(streams: Streams) -> Iterator[Callable[..., Graph]]:
    made: list[Graph] = []

    def graph(stream: Any, flags: int = 0) -> Graph:
        made.append(Graph(stream, flags))
        return made[-1]

    yield graph
    call("cuCtxSynchronize")
    for one in made:
        one.close()
    call("cuDeviceGraphMemTrim", 0)


@pytest.fixture
def stream(streams: Streams) -> Any:
    return streams.nonblocking()


def used() -> int:
    return int(call("cuDeviceGetGraphMemAttribute", 0, USED))


def host_copy(va: int, count: int, stream: Any) -> np.ndarray:
    out = np.zeros(count, np.uint8)
    call("cuMemcpyDtoHAsync", out.ctypes.data, va, count, stream)
    call("cuStreamSynchronize", stream)
    return out


def test_memory_lives_within_each_launch(record: Any, stream: Any, kernels: Kernels, page: int) -> None:
    """cuMemAllocAsync, cuMemFreeAsync: during capture they are nodes; the address is fixed, contents are not kept."""
    out = int(call("cuMemAlloc", 4096))
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", BYTES, stream))
        kernels("memx_stamp", stream, va, BYTES, 5 << 32 | 3, 0)
        call("cuMemcpyDtoDAsync", out, va + BYTES - 4096, 4096, stream)
        call("cuMemFreeAsync", va, stream)
    for _ in range(3):
        call("cuMemsetD8", out, 0, 4096)
        call("cuCtxSynchronize")
        assert graph.launch() == "SUCCESS"
        call("cuStreamSynchronize", stream)
        assert (read(out, 4096) == pattern(BYTES, 5 << 32 | 3)[-4096:]).all()
    call("cuMemFree", out)


def test_nodes_say_what_they_are(record: Any, stream: Any) -> None:
    """cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams: size, location and address."""
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", BYTES + 3, stream))
        call("cuMemFreeAsync", va, stream)
    nodes, count = call("cuGraphGetNodes", graph.graph, 2)
    assert count == 2
    kinds = {call("cuGraphNodeGetType", node): node for node in nodes}
    assert set(kinds) == {ALLOCATES, FREES}
    given = call("cuGraphMemAllocNodeGetParams", kinds[ALLOCATES])
    assert (int(given.dptr), int(given.bytesize)) == (va, BYTES + 3)
    assert (given.poolProps.location.type, given.poolProps.location.id) == (DEVICE, 0)
    assert int(call("cuGraphMemFreeNodeGetParams", kinds[FREES])) == va
    assert code("cuGraphMemFreeNodeGetParams", kinds[ALLOCATES]) == "INVALID_VALUE"


def test_what_is_not_freed_inside_is_used_and_freed_outside(record: Any, stream: Any, kernels: Kernels) -> None:
    """cuGraphAddMemAllocNode: operations ordered after the launch may use it; cuMemFreeAsync ends it."""
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", BYTES, stream))
        kernels("memx_stamp", stream, va, BYTES, 9 << 32, 0)
    for seed in (9 << 32, 10 << 32):
        assert graph.launch() == "SUCCESS"
        kernels("memx_stamp", stream, va, BYTES // 2, seed, 0)
        got = host_copy(va, BYTES, stream)
        assert (got[: BYTES // 2] == pattern(BYTES // 2, seed)).all()
        assert (got[BYTES // 2 :] == pattern(BYTES, 9 << 32)[BYTES // 2 :]).all()
        call("cuMemFreeAsync", va, stream)
        assert code("cuMemFreeAsync", va, stream) == "INVALID_VALUE"
    call("cuStreamSynchronize", stream)


@pytest.mark.parametrize("free", ["cuMemFree", "cuMemFreeAsync"])
def test_a_launch_with_memory_still_allocated_fails(free: str, record: Any, stream: Any) -> None:
    """cuGraphLaunch: INVALID_VALUE while allocations of the launch before are not freed."""
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", BYTES, stream))
    assert graph.launch() == "SUCCESS"
    assert graph.launch() == "INVALID_VALUE"
    call("cuStreamSynchronize", stream)
    call(free, va, *([stream] if free.endswith("Async") else []))
    assert graph.launch() == "SUCCESS"
    call("cuMemFreeAsync", va, stream)


def test_a_launch_can_free_what_the_one_before_left(record: Any, stream: Any, kernels: Kernels) -> None:
    """CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: as if cuMemFreeAsync were called for it first."""
    try:
        with record(stream, AUTO_FREE) as graph:
            va = int(call("cuMemAllocAsync", BYTES, stream))
            kernels("memx_stamp", stream, va, BYTES, 1 << 32, 0)
    except Exception as error:  # some drivers instantiate no such graph
        pytest.skip(str(error))
    for _ in range(3):
        assert graph.launch() == "SUCCESS"
    assert (host_copy(va, BYTES, stream) == pattern(BYTES, 1 << 32)).all()
    call("cuMemFreeAsync", va, stream)
    call("cuStreamSynchronize", stream)


def test_another_graph_frees(record: Any, stream: Any, kernels: Kernels) -> None:
    """cuGraphAddMemFreeNode: by a node of another graph, at each of its launches; then by none of its own."""
    with record(stream) as makes:
        va = int(call("cuMemAllocAsync", BYTES, stream))
    with record(stream) as frees:
        kernels("memx_fill", stream, va, BYTES, 4)
        call("cuMemFreeAsync", va, stream)
        assert code("cuMemFreeAsync", va, stream) == "INVALID_VALUE"
    for _ in range(2):
        assert makes.launch() == "SUCCESS"
        assert frees.launch() == "SUCCESS"
    call("cuStreamSynchronize", stream)


def test_memory_freed_inside_is_not_freed_outside(record: Any, stream: Any) -> None:
    """cuGraphAddMemAllocNode: if the owning graph frees it, nobody else may, and it does so once."""
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", BYTES, stream))
        call("cuMemFreeAsync", va, stream)
        assert code("cuMemFreeAsync", va, stream) == "INVALID_VALUE"
    assert graph.launch() == "SUCCESS"
    call("cuStreamSynchronize", stream)
    assert code("cuMemFreeAsync", va, stream) == "INVALID_VALUE"


@pytest.mark.parametrize("kind", ["cuMemAlloc", "cuMemAllocAsync", "nothing"])
def test_a_capture_frees_graph_memory_only(kind: str, stream: Any) -> None:
    """cuMemFreeAsync: during capture it must be passed the address of a graph allocation."""
    stream_if_async = [stream] if kind.endswith("Async") else []
    va = 4096 if kind == "nothing" else int(call(kind, 4096, *stream_if_async))
    call("cuStreamSynchronize", stream)
    call("cuStreamBeginCapture", stream, RELAXED)
    assert code("cuMemFreeAsync", va, stream) == "INVALID_VALUE"
    answer, graph = driver.cuStreamEndCapture(stream)
    if int(answer) == 0:
        call("cuGraphDestroy", graph)
    if kind != "nothing":
        call("cuMemFree", va)


def test_one_executable_graph_at_a_time(record: Any, stream: Any) -> None:
    """cuGraphInstantiate: at most one executable graph exists of a graph with memory nodes."""
    with record(stream) as graph:
        call("cuMemFreeAsync", call("cuMemAllocAsync", BYTES, stream), stream)
    assert code("cuGraphInstantiate", graph.graph, 0) in REFUSED
    call("cuGraphExecDestroy", graph.executable)
    graph.executable = call("cuGraphInstantiate", graph.graph, 0)
    assert graph.launch() == "SUCCESS"
    call("cuStreamSynchronize", stream)


def test_a_graph_with_memory_is_not_cloned(record: Any, stream: Any) -> None:
    """cuGraphAddMemAllocNode: the graph cannot be cloned."""
    with record(stream) as graph:
        call("cuMemFreeAsync", call("cuMemAllocAsync", BYTES, stream), stream)
    assert code("cuGraphClone", graph.graph) in REFUSED


def test_memory_outlives_its_graph(record: Any, stream: Any, kernels: Kernels) -> None:
    """Graph destruction frees nothing that is allocated: cuMemFree and cuMemFreeAsync do."""
    for free in ("cuMemFree", "cuMemFreeAsync"):
        with record(stream) as graph:
            va = int(call("cuMemAllocAsync", BYTES, stream))
        assert graph.launch() == "SUCCESS"
        graph.close()
        kernels("memx_stamp", stream, va, BYTES, 6 << 32, 0)
        assert (host_copy(va, BYTES, stream) == pattern(BYTES, 6 << 32)).all()
        call(free, va, *([stream] if free.endswith("Async") else []))
        call("cuStreamSynchronize", stream)
        assert code("cuMemFree", va) == "INVALID_VALUE"


def test_memory_for_graphs_is_counted_and_trimmed(record: Any, stream: Any) -> None:
    """cuDeviceGetGraphMemAttribute, cuDeviceGraphMemTrim: what is used is not given back, what is idle is."""
    call("cuDeviceGraphMemTrim", 0)
    before = used()
    call("cuDeviceSetGraphMemAttribute", 0, USED_HIGH, driver.cuuint64_t(0))
    with record(stream) as graph:
        va = int(call("cuMemAllocAsync", 8 * BYTES, stream))
    assert graph.launch() == "SUCCESS"
    call("cuStreamSynchronize", stream)
    assert used() - before >= 8 * BYTES
    assert int(call("cuDeviceGetGraphMemAttribute", 0, RESERVED)) >= used()
    call("cuDeviceGraphMemTrim", 0)
    assert used() - before >= 8 * BYTES
    call("cuMemFreeAsync", va, stream)
    call("cuStreamSynchronize", stream)
    graph.close()
    call("cuDeviceGraphMemTrim", 0)
    assert used() == before
    assert int(call("cuDeviceGetGraphMemAttribute", 0, USED_HIGH)) - before >= 8 * BYTES
    assert code("cuDeviceSetGraphMemAttribute", 0, USED_HIGH, driver.cuuint64_t(1)) == "INVALID_VALUE"


def test_nodes_can_be_made_by_hand(stream: Any) -> None:
    """cuGraphAddMemAllocNode, cuGraphAddMemFreeNode: the address comes back in the parameters."""
    graph = call("cuGraphCreate", 0)
    parameters = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    parameters.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    parameters.poolProps.location = location()
    parameters.bytesize = BYTES
    answer, makes = driver.cuGraphAddMemAllocNode(graph, None, 0, parameters)
    assert int(answer) == 0
    frees = call("cuGraphAddMemFreeNode", graph, [makes], 1, parameters.dptr)
    assert code("cuGraphAddMemFreeNode", graph, [frees], 1, parameters.dptr) == "INVALID_VALUE"
    assert code("cuGraphAddMemFreeNode", graph, [makes], 1, 4096) == "INVALID_VALUE"
    executable = call("cuGraphInstantiate", graph, 0)
    call("cuGraphLaunch", executable, stream)
    call("cuStreamSynchronize", stream)
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph)
    parameters.bytesize = 0
    graph = call("cuGraphCreate", 0)
    assert code("cuGraphAddMemAllocNode", graph, None, 0, parameters) == "INVALID_VALUE"
    call("cuGraphDestroy", graph)
    call("cuDeviceGraphMemTrim", 0)
