"""What is read back after kernels that compute nothing, and the stand-ins for cuBLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from memx import sim

from .runtime import DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Kernel, allocate

BYTES = 64


class Memory:
    """Device memory of 64 bytes, 1, 2, 3 and so on, and a kernel to launch."""

    def __init__(self, runtime: ctypes.CDLL, kernel: Kernel) -> None:
        self.runtime, self.kernel = runtime, kernel
        self.at = allocate(runtime, 2 * BYTES)
        self.put(0, np.arange(1, BYTES + 1, dtype=np.uint8))

    def put(self, offset: int, data: np.ndarray) -> None:
        assert (
            self.runtime.cudaMemcpy(self._to(offset), c_void_p(data.ctypes.data), c_size_t(data.nbytes), HOST_TO_DEVICE)
            == 0
        )

    def copy(self, to: int, start: int, count: int) -> None:
        code = self.runtime.cudaMemcpyAsync(self._to(to), self._to(start), c_size_t(count), DEVICE_TO_DEVICE, None)
        assert code == 0

    def fill(self, offset: int, value: int, count: int) -> None:
        assert self.runtime.cudaMemsetAsync(self._to(offset), value, c_size_t(count), None) == 0

    def get(self, offset: int, count: int, kind: int = DEVICE_TO_HOST) -> list[int]:
        out = np.full(count, 255, np.uint8)
        assert self.runtime.cudaMemcpy(c_void_p(out.ctypes.data), self._to(offset), c_size_t(count), kind) == 0
        return out.tolist()

    def _to(self, offset: int) -> c_void_p:
        return c_void_p(self.at.value + offset)


@pytest.fixture
def memory(runtime: ctypes.CDLL) -> Iterator[Memory]:
    with Kernel(runtime, b"a_kernel") as kernel:
        made = Memory(runtime, kernel)
        yield made
        assert runtime.cudaFree(made.at) == 0


def test_values_are_what_was_copied_until_a_kernel_runs(memory: Memory) -> None:
    assert memory.get(8, 4) == [9, 10, 11, 12]
    memory.kernel.launch()
    assert memory.get(8, 4) == memory.get(8, 4, DEFAULT) == [0] * 4
    assert memory.get(0, 16) == [0] * 16
    memory.put(0, np.full(BYTES, 5, np.uint8))
    assert memory.get(8, 4) == [5] * 4


def test_larger_pieces_keep_their_contents(memory: Memory) -> None:
    memory.kernel.launch()
    assert memory.get(8, 17) == list(range(9, 26))
    assert memory.get(0, BYTES) == list(range(1, BYTES + 1))


def test_a_value_copied_or_set_as_such_stays(memory: Memory) -> None:
    memory.put(8, np.array([7, 7, 7, 7], np.uint8))
    memory.fill(16, 3, 8)
    memory.kernel.launch()
    assert memory.get(8, 4) == [7] * 4
    assert memory.get(16, 8) == [3] * 8
    assert memory.get(8, 3) == [0] * 3  # a part of it


def test_a_copy_of_an_unknown_value_is_unknown(memory: Memory) -> None:
    memory.put(8, np.array([7, 7, 7, 7], np.uint8))
    memory.kernel.launch()
    memory.copy(40, 8, 4)
    memory.copy(48, 24, 4)
    assert memory.get(40, 4) == [7] * 4
    assert memory.get(48, 4) == [0] * 4
    assert memory.get(32, 17)[16] == 25  # read in a larger piece it is what was there


def test_what_overlaps_no_longer_counts(memory: Memory) -> None:
    memory.put(20, np.full(8, 9, np.uint8))
    memory.kernel.launch()
    memory.put(24, np.full(8, 6, np.uint8))
    assert memory.get(20, 8) == [0] * 8  # half of it was written again
    assert memory.get(20, 4) == [0] * 4  # and the other half was a part
    assert memory.get(24, 8) == [6] * 8
    memory.kernel.launch()
    assert memory.get(24, 8) == [6] * 8
    assert memory.get(28, 4) == [0] * 4


@pytest.fixture
def blas(runtime: ctypes.CDLL) -> ctypes.CDLL:
    return ctypes.CDLL("libcublas.so.13")


def test_products_are_queued_on_the_stream_of_their_handle(runtime: ctypes.CDLL, blas: ctypes.CDLL) -> None:
    handle, stream, found = c_void_p(), c_void_p(), c_void_p()
    assert blas.cublasCreate_v2(byref(handle)) == runtime.cudaStreamCreate(byref(stream)) == 0
    assert blas.cublasSetStream_v2(handle, stream) == blas.cublasGetStream_v2(handle, byref(found)) == 0
    assert found.value == stream.value
    sim.hold(stream.value)
    assert blas.cublasSgemm_v2(handle) == 0
    assert runtime.cudaStreamQuery(stream) == 600
    sim.release(stream.value)
    assert runtime.cudaStreamSynchronize(stream) == 0
    assert sim.calls()["kernel:cublasSgemm_v2"] >= 1
    assert blas.cublasDestroy_v2(handle) == runtime.cudaStreamDestroy(stream) == 0
    assert blas.cublasSetStream_v2(handle, None) == blas.cublasDestroy_v2(handle) == 1


def test_settings_of_a_handle_are_kept(runtime: ctypes.CDLL, blas: ctypes.CDLL) -> None:
    handle, mode = c_void_p(), c_int()
    assert blas.cublasCreate_v2(byref(handle)) == 0
    assert blas.cublasSetMathMode(handle, 3) == blas.cublasSetPointerMode_v2(handle, 1) == 0
    assert blas.cublasGetMathMode(handle, byref(mode)) == 0
    assert mode.value == 3
    assert blas.cublasGetPointerMode_v2(handle, byref(mode)) == 0
    assert mode.value == 1
    assert blas.cublasDestroy_v2(handle) == 0


def test_a_function_without_a_handle_is_counted(runtime: ctypes.CDLL, blas: ctypes.CDLL) -> None:
    before = sim.calls().get("cublasInit", 0)
    assert blas.cublasInit() == 0
    assert sim.calls()["cublasInit"] == before + 1


def test_lt_has_descriptors_and_one_algorithm(runtime: ctypes.CDLL) -> None:
    lt = ctypes.CDLL("libcublasLt.so.13")
    descriptor, value, written = c_void_p(), c_int(5), c_size_t()
    assert lt.cublasLtMatmulDescCreate(byref(descriptor), 68, 0) == 0
    assert lt.cublasLtMatmulDescSetAttribute(descriptor, 3, byref(value), c_size_t(4)) == 0
    value.value = 0
    assert lt.cublasLtMatmulDescGetAttribute(descriptor, 3, byref(value), c_size_t(4), byref(written)) == 0
    assert (value.value, written.value) == (5, 4)
    assert lt.cublasLtMatmulDescDestroy(descriptor) == 0
    results, found = (ctypes.c_char * (3 * 96))(), c_int()
    assert lt.cublasLtMatmulAlgoGetHeuristic(*[None] * 7, 3, results, byref(found)) == 0
    assert found.value == 1
    lt.cublasLtGetStatusString.restype = c_char_p
    assert lt.cublasLtGetStatusString(0) == b"CUBLAS_STATUS_SUCCESS"
