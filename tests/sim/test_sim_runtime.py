"""The simulated CUDA runtime, by its C interface, on the same driver as the other tests."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

import memx
from memx import sim

from .machine import isolated
from .runtime import DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Kernel, allocate

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_DEVICE, INVALID_KERNEL = 1, 2, 9, 101, 98
INVALID_DIRECTION, INVALID_HANDLE, NOT_READY, NOT_SUPPORTED = 21, 400, 600, 801

pytestmark = pytest.mark.usefixtures("clean")


def test_devices_are_the_drivers(runtime: ctypes.CDLL) -> None:
    count, current = c_int(), c_int(-1)
    assert runtime.cudaGetDeviceCount(byref(count)) == 0
    assert count.value == 2
    assert runtime.cudaSetDevice(1) == 0
    assert runtime.cudaGetDevice(byref(current)) == 0
    assert current.value == 1
    assert runtime.cudaSetDevice(2) == INVALID_DEVICE
    assert runtime.cudaGetDevice(byref(current)) == 0
    assert current.value == 1
    assert runtime.cudaSetDevice(0) == 0


def test_properties_have_no_zero_where_operators_divide(runtime: ctypes.CDLL) -> None:
    space = ctypes.create_string_buffer(1008)
    assert runtime.cudaGetDeviceProperties(space, 0) == 0
    assert space.value == b"memx simulated device"
    value = c_int()
    for attribute in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 39, 75, 81, 82, 97):
        assert runtime.cudaDeviceGetAttribute(byref(value), attribute, 0) == 0
        assert value.value > 0, attribute


def test_contents_go_to_the_device_and_back(runtime: ctypes.CDLL) -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8)
    back = np.zeros_like(data)
    a, b = allocate(runtime, data.nbytes), allocate(runtime, data.nbytes)
    nbytes = c_size_t(data.nbytes)
    assert runtime.cudaMemcpy(a, c_void_p(data.ctypes.data), nbytes, HOST_TO_DEVICE) == 0
    assert runtime.cudaMemcpyAsync(b, a, nbytes, DEVICE_TO_DEVICE, None) == 0
    assert runtime.cudaMemset(a, 7, c_size_t(1000)) == 0
    assert runtime.cudaMemcpy(c_void_p(back.ctypes.data), b, nbytes, DEFAULT) == 0
    np.testing.assert_array_equal(back, data)
    assert runtime.cudaMemcpy(c_void_p(back.ctypes.data), a, nbytes, DEVICE_TO_HOST) == 0
    data[:1000] = 7
    np.testing.assert_array_equal(back, data)
    assert runtime.cudaFree(a) == runtime.cudaFree(b) == 0


def test_rows_with_pitches(runtime: ctypes.CDLL) -> None:
    source = np.arange(6 * 32, dtype=np.uint8).reshape(6, 32)
    back = np.zeros((6, 20), np.uint8)
    a = allocate(runtime, 6 * 64)
    sizes = [c_size_t(n) for n in (64, 32, 20, 6)]
    copy = runtime.cudaMemcpy2DAsync
    assert copy(a, sizes[0], c_void_p(source.ctypes.data), sizes[1], sizes[2], sizes[3], HOST_TO_DEVICE, None) == 0
    assert copy(c_void_p(back.ctypes.data), sizes[2], a, sizes[0], sizes[2], sizes[3], DEVICE_TO_HOST, None) == 0
    assert runtime.cudaDeviceSynchronize() == 0
    np.testing.assert_array_equal(back, source[:, :20])
    assert runtime.cudaFree(a) == 0


@pytest.mark.parametrize("function", ["cudaMalloc", "cudaMallocHost"])
def test_no_bytes_are_a_null_pointer(runtime: ctypes.CDLL, function: str) -> None:
    out = c_void_p(1)
    assert getattr(runtime, function)(byref(out), c_size_t(0)) == 0
    assert out.value is None
    assert runtime.cudaFree(None) == runtime.cudaFreeHost(None) == 0


def test_wrong_copies_are_refused(runtime: ctypes.CDLL) -> None:
    data = np.zeros(64, np.uint8)
    host, nbytes = c_void_p(data.ctypes.data), c_size_t(64)
    a = allocate(runtime, 64)
    assert runtime.cudaMemcpy(a, host, nbytes, 5) == INVALID_DIRECTION
    assert runtime.cudaMemcpy(a, None, nbytes, HOST_TO_DEVICE) == INVALID_VALUE
    assert runtime.cudaMemcpy(host, a, nbytes, HOST_TO_DEVICE) == INVALID_VALUE
    assert runtime.cudaMemcpy(a, host, c_size_t(65), HOST_TO_DEVICE) == INVALID_VALUE
    assert runtime.cudaFree(host) == INVALID_VALUE
    assert runtime.cudaFree(a) == 0
    assert runtime.cudaFree(a) == INVALID_VALUE


def test_each_thread_has_a_last_error(runtime: ctypes.CDLL) -> None:
    out = c_void_p()
    assert runtime.cudaMalloc(byref(out), c_size_t(1 << 40)) == OUT_OF_MEMORY
    assert runtime.cudaDeviceSynchronize() == 0
    other = []
    thread = Thread(target=lambda: other.append(runtime.cudaGetLastError()))
    thread.start()
    thread.join()
    assert other == [0]
    assert runtime.cudaPeekAtLastError() == runtime.cudaGetLastError() == OUT_OF_MEMORY
    assert runtime.cudaGetLastError() == 0
    assert runtime.cudaGetErrorName(OUT_OF_MEMORY) == b"cudaErrorMemoryAllocation"
    assert runtime.cudaGetErrorString(OUT_OF_MEMORY) == b"out of memory"


def test_streams_and_events_are_the_drivers(runtime: ctypes.CDLL) -> None:
    stream, event = c_void_p(), c_void_p()
    assert runtime.cudaStreamCreateWithPriority(byref(stream), 1, -1) == 0
    assert runtime.cudaEventCreateWithFlags(byref(event), 2) == 0
    sim.hold(stream.value)
    assert runtime.cudaEventRecord(event, stream) == 0
    assert runtime.cudaEventQuery(event) == runtime.cudaStreamQuery(stream) == NOT_READY
    assert runtime.cudaGetLastError() == NOT_READY
    sim.release(stream.value)
    assert runtime.cudaEventSynchronize(event) == runtime.cudaEventQuery(event) == 0
    assert runtime.cudaEventElapsedTime(byref(ctypes.c_float()), event, event) == INVALID_HANDLE  # has no time
    assert runtime.cudaEventDestroy(event) == runtime.cudaStreamDestroy(stream) == 0
    assert runtime.cudaStreamSynchronize(stream) == INVALID_HANDLE


def test_pointers_are_known_by_what_they_point_to(runtime: ctypes.CDLL) -> None:
    class Attributes(ctypes.Structure):
        _fields_ = (("type", c_int), ("device", c_int), ("device_pointer", c_void_p), ("host_pointer", c_void_p))
        _pad_ = ctypes.c_long * 8

    space = ctypes.create_string_buffer(ctypes.sizeof(Attributes) + 128)
    found = Attributes.from_buffer(space)
    pageable, pinned, device = np.zeros(8), c_void_p(), allocate(runtime, 64)
    assert runtime.cudaHostAlloc(byref(pinned), c_size_t(64), 0) == 0
    for address, kind in ((pageable.ctypes.data, 0), (pinned.value, 1), (device.value, 2)):
        assert runtime.cudaPointerGetAttributes(space, c_void_p(address)) == 0
        assert found.type == kind
        assert found.device == (0 if kind else -2)
        assert found.host_pointer == (address if kind < 2 else None)
    assert runtime.cudaFree(device) == runtime.cudaFreeHost(pinned) == 0


def test_kernels_are_counted_by_name(runtime: ctypes.CDLL) -> None:
    with Kernel(runtime, b"some_kernel") as kernel:
        before = sim.calls().get("kernel:some_kernel", 0)
        assert [kernel.launch(), kernel.launch()] == [0, 0]
        assert sim.calls()["kernel:some_kernel"] == before + 2
        assert kernel.launch(grid=(0, 1, 1)) == kernel.launch(block=(64, 64, 1)) == INVALID_CONFIGURATION
        assert kernel.launch(shared=100 << 10) == INVALID_VALUE
        assert runtime.cudaFuncSetAttribute(kernel.host, 8, 100 << 10) == 0
        assert kernel.launch(shared=100 << 10) == 0
    assert kernel.launch() == INVALID_KERNEL


def test_capture_and_replay(runtime: ctypes.CDLL) -> None:
    stream, graph, executable, count = c_void_p(), c_void_p(), c_void_p(), c_size_t()
    a = allocate(runtime, 64)
    assert runtime.cudaStreamCreate(byref(stream)) == 0
    assert runtime.cudaStreamBeginCapture(stream, 0) == 0
    assert runtime.cudaMemsetAsync(a, 9, c_size_t(64), stream) == 0
    assert runtime.cudaStreamEndCapture(stream, byref(graph)) == 0
    assert runtime.cudaGraphGetNodes(graph, None, byref(count)) == 0
    assert count.value == 1
    assert runtime.cudaGraphInstantiate(byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    assert runtime.cudaGraphLaunch(executable, stream) == runtime.cudaStreamSynchronize(stream) == 0
    back = np.zeros(64, np.uint8)
    assert runtime.cudaMemcpy(c_void_p(back.ctypes.data), a, c_size_t(64), DEVICE_TO_HOST) == 0
    assert (back == 9).all()
    assert runtime.cudaGraphExecDestroy(executable) == runtime.cudaGraphDestroy(graph) == 0
    assert runtime.cudaStreamDestroy(stream) == runtime.cudaFree(a) == 0


def test_a_graph_owns_objects_of_the_program(runtime: ctypes.CDLL) -> None:
    ended = Event()
    destroy = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: ended.set() if data == 7 else None)
    graph, thing = c_void_p(), c_void_p()
    assert runtime.cudaGraphCreate(byref(graph), 0) == 0
    assert runtime.cudaUserObjectCreate(byref(thing), c_void_p(7), destroy, 1, 1) == 0
    assert runtime.cudaGraphRetainUserObject(graph, thing, 1, 0) == runtime.cudaUserObjectRelease(thing, 1) == 0
    assert not ended.is_set()
    assert runtime.cudaGraphDestroy(graph) == 0
    assert ended.wait(60)


def test_what_is_not_there_says_so(runtime: ctypes.CDLL) -> None:
    before = sim.calls().get("cudaIpcGetMemHandle", 0)
    assert runtime.cudaIpcGetMemHandle(None, None) == NOT_SUPPORTED
    assert sim.calls()["cudaIpcGetMemHandle"] == before + 1
    assert runtime.cudaMallocManaged(byref(c_void_p()), c_size_t(64), 1) == NOT_SUPPORTED


def test_a_reset_ends_the_primary_context_and_the_next_call_makes_another() -> None:
    out = isolated(
        """
runtime, out = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
print(runtime.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(1 << 20)), sim.usage()["device_bytes"])
print(runtime.cudaDeviceReset(), sim.usage()["device_bytes"])
print(runtime.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(1 << 20)), sim.usage()["device_bytes"])
print(runtime.cudaMemset(out, 1, ctypes.c_size_t(64)), runtime.cudaStreamSynchronize(None))
""",
        start=False,
    )
    assert out.splitlines() == ["0 [1048576]", "0 [0]", "0 [1048576]", "0 0"]


def test_a_bad_address_in_queued_work_is_the_last_error_for_good() -> None:
    out = isolated(
        """
runtime, out = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
kernels("memx_touch", 0, 4096, 64, 1)
print(runtime.cudaDeviceSynchronize(), runtime.cudaGetLastError(), runtime.cudaGetLastError())
print(runtime.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(64)))
def in_another_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start(), thread.join()
    return found[0]
print(in_another_thread(runtime.cudaGetLastError), in_another_thread(runtime.cudaDeviceSynchronize))
print(in_another_thread(runtime.cudaDeviceReset), runtime.cudaGetLastError(), runtime.cudaDeviceSynchronize())
"""
    )
    assert out.split() == ["700", "700", "700", "700", "0", "700", "0", "0", "0"]


def test_symbols_have_the_versions_that_programs_ask_for(runtime: ctypes.CDLL) -> None:
    libc = ctypes.CDLL(None)
    libc.dlvsym.restype = c_void_p
    libc.dlvsym.argtypes = [c_void_p, c_char_p, c_char_p]
    functions = {"libcudart.so.13": b"cudaMalloc", "libcublas.so.13": b"cublasSgemm_v2"}
    functions["libcublasLt.so.13"] = b"cublasLtMatmul"
    for library in sim.libraries():
        if library.name in functions:
            handle, name = ctypes.CDLL(str(library))._handle, functions[library.name]
            assert libc.dlvsym(handle, name, library.name.encode())
            assert not libc.dlvsym(handle, name, b"other")


def test_the_management_library_finds_the_devices(runtime: ctypes.CDLL) -> None:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    count, handle, index = ctypes.c_uint(), c_void_p(), ctypes.c_uint()
    assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(byref(count)) == 0
    assert count.value == 2
    assert nvml.nvmlDeviceGetHandleByPciBusId_v2(b"0000:02:00.0", byref(handle)) == 0
    assert nvml.nvmlDeviceGetIndex(handle, byref(index)) == 0
    assert index.value == 1
    memory = (ctypes.c_ulonglong * 3)()
    a = allocate(runtime, 1 << 20)
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)) == nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    assert memory[0] == 1 << 30
    assert memory[2] == sim.usage()["device_bytes"][0] >= 1 << 20
    assert runtime.cudaFree(a) == 0


@pytest.mark.parametrize(
    ("setting", "devices", "memory"),
    [("1", 1, 1 << 30), ("memory=64MiB, page=64KiB,devices=2", 2, 64 << 20), ("memory=100p,page=64KiB", 1, 100 << 16)],
)
def test_a_driver_that_nobody_configured_reads_the_environment(setting: str, devices: int, memory: int) -> None:
    out = started(setting)
    assert out.stdout.split() == ["0", str(devices), str(memory)]
    assert out.stderr == ""


@pytest.mark.parametrize(
    "setting", ["memory", "colour=red", "devices=two", "memory=1,,page=1", "page=3", "memory=1XiB"]
)
def test_a_driver_that_nobody_configured_refuses_a_bad_environment(setting: str) -> None:
    out = started(setting)
    assert out.stdout.split()[0] == "1"
    assert "MEMX_SIMULATE" in out.stderr
    assert len(out.stderr.splitlines()) == 1


def started(setting: str) -> subprocess.CompletedProcess[str]:
    driver = Path(memx.__file__).parent / "_sim" / "libcuda.so.1"
    script = f"""
import ctypes
cuda, count, total = ctypes.CDLL({str(driver)!r}), ctypes.c_int(), ctypes.c_size_t()
code = cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
print(code, count.value, total.value)
"""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"MEMX_SIMULATE": setting}
    )
