"""Bad input, pauses, threads, forks, exits: the calls that come at the wrong time."""

from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import memx
from memx import _native

from .conftest import PAGE
from .device import Kernels

Make = Callable[..., _native.Resource]


@pytest.mark.parametrize("size", [-1, -(2**70), 2**64 - 1, 2**64 - 510, 2**62 + 1, 2**200])
@pytest.mark.parametrize("lazy", [False, True])
def test_sizes_that_cannot_be_are_refused(resource: Make, size: int, lazy: bool) -> None:
    r = resource(lazy=lazy)
    with pytest.raises(memx.InvalidValueError):
        r.allocate(size)
    assert r.statistics()["allocations"] == 0


@pytest.mark.parametrize("lazy", [False, True])
def test_sizes_that_fit_no_memory_are_out_of_memory(resource: Make, lazy: bool) -> None:
    r = resource(lazy=lazy)
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(2**61)


@pytest.mark.parametrize("size", ["1", 1.5, None])
def test_sizes_of_another_type_are_refused(resource: Make, size: object) -> None:
    with pytest.raises(TypeError):
        resource().allocate(size)


def test_frees_that_are_nobodys(resource: Make, kernels: Kernels) -> None:
    r, other = resource(), resource()
    a = r.allocate(PAGE)
    foreign = other.allocate(PAGE)
    kernels.stamp(0, a, PAGE, 1 << 32)
    for address in (a + 512, foreign, 12345, 2**63):
        with pytest.raises(memx.InvalidStateError, match="not a live buffer"):
            r.free(address)
    r.free(a)
    with pytest.raises(memx.InvalidStateError, match="not a live buffer"):
        r.free(a)
    b = r.allocate(PAGE)
    kernels.stamp(0, b, PAGE, 2 << 32)
    r.check()
    assert r.statistics()["frees"] == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device_limit": PAGE - 1}, "smaller than one page"),
        ({"device_limit": 4 * PAGE, "host_limit": 5}, "smaller than one page"),
        ({"device_limit": -1}, "negative"),
        ({"device_limit": 4 * PAGE, "reuse": "all"}, "'all' is unknown"),
        ({"device_limit": 4 * PAGE, "page": 3 * PAGE}, "power of two"),
        ({"device_limit": 4 * PAGE, "page": 4096}, "granularity"),
        ({"device_limit": 4 * PAGE, "device": 9}, "does not exist"),
    ],
)
def test_bad_configurations(kernels: Kernels, options: dict[str, object], text: str) -> None:
    with pytest.raises(memx.InvalidValueError, match=text):
        _native.Resource(**{"device": 0, "host_limit": 0, **options})


def test_operands_outside_their_buffer(resource: Make) -> None:
    r = resource(lazy=True)
    a = r.allocate(1000)
    for offset, nbytes in ((0, 1001), (1001, 0), (999, 2), (2**63, 1), (1, 2**64 - 1)):
        if nbytes:
            with pytest.raises(memx.InvalidValueError, match="outside"):
                r.begin_use([(a, offset, nbytes, 1)], 0)
    with pytest.raises(memx.InvalidStateError):
        r.begin_use([(a + 512, 0, 1, 1)], 0)


@pytest.mark.parametrize("lazy", [False, True])
def test_pause_frees_memory_and_resume_brings_contents_back(resource: Make, kernels: Kernels, lazy: bool) -> None:
    r = resource(device=8, host=8, lazy=lazy)
    tag = r.tag_id("weights")
    sizes = [2 * PAGE, PAGE // 2, PAGE + 512]
    weights = [r.allocate(size, tag=tag) for size in sizes]
    other = r.allocate(PAGE)
    for i, (address, size) in enumerate(zip(weights, sizes, strict=True)):
        token = r.begin_use([(address, 0, size, 2)], 0)
        kernels.stamp(0, address, size, i + 1 << 32)
        r.end_use(token)
    kernels.synchronize()
    r.pause(tag)
    r.pause(tag)
    r.check()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == (0 if lazy else PAGE)
    if not lazy:
        with pytest.raises(memx.InvalidStateError, match="paused"):
            r.begin_use([(weights[0], 0, 1, 1)], 0)
    r.resume(tag)
    r.resume(tag)
    r.check()
    for i, (address, size) in enumerate(zip(weights, sizes, strict=True)):
        token = r.begin_use([(address, 0, size, 1)], 0)
        kernels.verify(0, address, size, i + 1 << 32)
        r.end_use(token)
    kernels.synchronize()
    assert kernels.mismatches == 0
    for address in (*weights, other):
        r.free(address)
    r.check()


def test_pause_without_keep_copies_nothing(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=0)
    tag = r.tag_id("scratch")
    a = r.allocate(4 * PAGE, tag=tag)
    kernels.stamp(0, a, 4 * PAGE, 1 << 32)
    kernels.synchronize()
    r.pause(tag, False)
    r.trim()
    s = r.statistics()
    assert (s["reserved_bytes.current"], s["migrated_out_bytes"]) == (0, 0)
    r.resume(tag)
    kernels.stamp(0, a, 4 * PAGE, 2 << 32)
    r.free(a)


def test_a_pause_that_does_not_fit_the_host_changes_nothing(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=2)
    tag = r.tag_id("weights")
    a = r.allocate(4 * PAGE, tag=tag)
    kernels.stamp(0, a, 4 * PAGE, 1 << 32)
    kernels.synchronize()
    with pytest.raises(memx.OutOfMemoryError, match="host_limit"):
        r.pause(tag)
    r.check()
    kernels.verify(0, a, 4 * PAGE, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0


def test_freeing_paused_buffers_gives_everything_back(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=8)
    tag = r.tag_id("weights")
    buffers = [r.allocate(PAGE // 2 + 512, tag=tag) for _ in range(5)]
    kernels.synchronize()
    r.pause(tag)
    for address in buffers[::2]:
        r.free(address)
    r.check()
    r.resume(tag)
    r.check()
    for address in buffers[1::2]:
        r.free(address)
    kernels.synchronize()
    r.trim()
    s = r.statistics()
    assert (s["reserved_bytes.current"], s["host_bytes.current"]) == (0, 0)


def test_peaks_reset_and_currents_do_not(resource: Make) -> None:
    r = resource(device=16, host=0)
    a = r.allocate(5 * PAGE)
    r.free(r.allocate(3 * PAGE))
    before = {k: v for k, v in r.statistics().items() if k.endswith(".current")}
    r.reset_peak_statistics()
    after = r.statistics()
    assert {k: v for k, v in after.items() if k.endswith(".current")} == before
    assert all(after[k.replace(".current", ".peak")] == v for k, v in before.items())
    r.free(a)


@pytest.mark.parametrize("lazy", [False, True])
def test_threads_keep_the_limit_and_leave_nothing(resource: Make, kernels: Kernels, lazy: bool) -> None:
    r = resource(device=8, host=0, lazy=lazy)
    for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        memx.sim.fail(call, every=7, code="OUT_OF_MEMORY")
    surprises: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        held: list[int] = []
        try:
            for _ in range(1000):
                try:
                    address = r.allocate(2 * PAGE)
                    held.append(address)
                    r.end_use(r.begin_use([(address, 0, 2 * PAGE, 2)], 0))
                except memx.OutOfMemoryError:
                    pass
                while held and (len(held) > 1 or rng.random() < 0.7):
                    r.free(held.pop(rng.randrange(len(held))))
        except BaseException as error:
            surprises.append(error)
        finally:
            for address in held:
                r.free(address)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        memx.sim.fail(call)
    assert surprises == []
    r.check()
    s = r.statistics()
    assert s["reserved_bytes.peak"] <= 8 * PAGE
    assert s["allocated_bytes.current"] == s["requested_bytes.current"] == s["active_bytes.current"] == 0
    kernels.synchronize()
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == 0


def test_the_collector_may_run_inside_an_allocation(kernels: Kernels, oracle: None) -> None:
    mr = memx.MemoryResource(0, device_limit="512MiB", host_limit=0, page=PAGE)
    rng = random.Random(3)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(10_000):
            cycle: list[object] = [mr.allocate(rng.randint(1, 64) * 512)]
            cycle.append(cycle)
    finally:
        gc.set_threshold(*threshold)
    del cycle
    gc.collect()
    mr.native.check()
    assert mr.statistics()["allocated_bytes.current"] == 0
    mr.native.close()


SIMULATE = f"import memx, gc, os; memx.simulate(memory='16MiB', host_memory='16MiB', page={PAGE})\n"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with the memx of this one and no driver yet."""
    environment = {k: v for k, v in os.environ.items() if k != "MEMX_SIMULATE"}
    package = Path(memx.__file__).parent
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=package / "data",
        env={**environment, "PYTHONPATH": str(package.parent)},
    )


def run(code: str) -> subprocess.CompletedProcess[str]:
    return python(SIMULATE + code)


@pytest.mark.parametrize("order", ["del mr, live", "del live, mr", "cycle = [mr, live]; cycle.append(cycle)", "pass"])
def test_exit_is_silent(order: str) -> None:
    code = (
        "mr = memx.MemoryResource(0, device_limit='1MiB', host_limit=0)\n"
        "cached = mr.allocate(70000); cached.close()\n"
        "live = mr.allocate(70000)\n"
        f"{order}\n"
    )
    for _ in range(3):
        done = run(code)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_child_after_fork_is_told_and_the_parent_goes_on() -> None:
    done = run(
        "mr = memx.MemoryResource(0, device_limit='1MiB', host_limit=0)\n"
        "b = mr.allocate(1000)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        mr.allocate(10)\n"
        "    except memx.InvalidStateError as e:\n"
        "        assert 'initialised before fork' in str(e)\n"
        "        del b\n"
        "        gc.collect()\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "b.close(); mr.allocate(5).close(); mr.native.check()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    raise SystemExit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_driver_names_the_way_out() -> None:
    done = python("import memx; memx.MemoryResource(0)")
    if done.returncode == 0:
        pytest.skip("there is a driver")
    assert "memx.errors.DriverError: no CUDA driver" in done.stderr
    assert "memx.simulate()" in done.stderr


def test_a_driver_too_old_is_named() -> None:
    done = python("import memx; memx.simulate(driver_version=11080); memx.MemoryResource(0)")
    assert "memx.errors.DriverError: the CUDA driver is too old: it speaks CUDA 11.8" in done.stderr


def test_after_a_sticky_error_frees_are_quiet_and_the_rest_raises() -> None:
    done = run(
        "from memx import _native\n"
        "from cuda.bindings import driver\n"
        f"r = _native.Resource(0, 16 * {PAGE}, 0)\n"
        "a, b = r.allocate(1000), r.allocate(1000)\n"
        "driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])\n"
        "ptx = open(os.path.join(os.path.dirname(memx.__file__), 'kernels.ptx'), 'rb').read() + b'\\0'\n"
        "touch = driver.cuModuleGetFunction(driver.cuModuleLoadData(ptx)[1], b'memx_touch')[1]\n"
        "import ctypes as c\n"
        f"operands = ((a + 10 * {PAGE}, 8, 1), (c.c_uint64, c.c_uint64, c.c_uint32))\n"
        "driver.cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, 0, operands, 0)\n"
        "driver.cuCtxSynchronize()\n"
        "r.free(a)\n"
        "try:\n"
        f"    r.allocate(9 * {PAGE})\n"
        "    raise SystemExit('no error')\n"
        "except memx.DriverError as e:\n"
        "    assert e.name == 'CUDA_ERROR_ILLEGAL_ADDRESS', e.name\n"
        "    assert 'restart' in str(e)\n"
        "r.free(b)\n"
        "assert r.statistics()['allocated_bytes.current'] == 0\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cuda_core_buffer_through_and_through(kernels: Kernels, oracle: None) -> None:
    from cuda.core import Buffer, Device, MemoryResource

    device = Device(0)
    device.set_current()
    mr = memx.MemoryResource(device, device_limit="16p", host_limit="8p", page=PAGE)
    assert isinstance(mr, MemoryResource)
    stream = device.create_stream()
    with mr.tag("weights"):
        a = mr.allocate("2p", stream=stream)
    b = mr.allocate(2 * PAGE, stream=stream)
    assert isinstance(a, memx.Buffer)
    assert isinstance(a, Buffer)
    assert (a.size, a.memory_resource, a.device_id) == (2 * PAGE, mr, 0)
    a.fill(7, stream=stream)
    b.copy_from(a, stream=stream)
    with mr.resident(a, reads=[(b, 0, 512)], stream=stream):
        kernels.verify(int(stream.handle), int(a.handle), 0, 0)
    out = np.empty(2 * PAGE, np.uint8)
    mr.native.read(int(b.handle), 0, out)
    assert (out == 7).all()
    zero = mr.allocate(0)
    assert zero.size == 0
    for buffer in (a, zero):
        buffer.close()
    b.close(stream=int(stream.handle))
    with pytest.raises(memx.InvalidValueError, match="not a stream"):
        mr.allocate(1, stream="s")
    assert mr.statistics()["frees"] == 2
    stream.sync()
    mr.native.close()


def test_a_buffer_is_not_exportable_and_says_so(kernels: Kernels, oracle: None) -> None:
    mr = memx.MemoryResource(0, device_limit="16p", host_limit=0, page=PAGE)
    assert not mr.is_ipc_enabled
    buffer = mr.allocate("3p")
    with pytest.raises(memx.InvalidStateError, match="not exportable"):
        _ = buffer.ipc_descriptor
    with pytest.raises(memx.InvalidStateError, match="not exportable"):
        pickle.dumps(buffer)
    buffer.close()
    mr.native.close()


def test_drivers_without_context_events_are_waited_for_whole() -> None:
    done = python(
        f"import memx; memx.simulate(memory='16MiB', host_memory='16MiB', page={PAGE}, driver_version=12020)\n"
        "from memx import _native\n"
        "from cuda.bindings import driver\n"
        f"r = _native.Resource(0, 2 * {PAGE}, 0)\n"
        "driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])\n"
        "stream = int(driver.cuStreamCreate(1)[1])\n"
        f"a = r.allocate(2 * {PAGE}, stream)\n"
        "memx.sim.hold(stream)\n"
        f"driver.cuMemsetD8Async(a, 1, 2 * {PAGE}, stream)\n"
        "driver.cuStreamDestroy(stream)\n"
        "r.free(a)\n"
        f"b = r.allocate(2 * {PAGE}, 0)\n"
        "assert r.statistics()['driver_calls'].get('cuCtxRecordEvent', 0) == 0\n"
        "assert r.statistics()['driver_calls']['cuCtxSynchronize'] == 1\n"
        f"driver.cuMemsetD8Async(b, 2, 2 * {PAGE}, 0)\n"
        "driver.cuCtxSynchronize()\n"
        "assert memx.sim.races() == []\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
