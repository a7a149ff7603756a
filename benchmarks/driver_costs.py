"""What each driver call costs the host, on whatever driver there is.

    python benchmarks/driver_costs.py [--output costs.json] [--repeat 200] [--simulate]

Medians over repeated calls, in microseconds, of 1, 8 and 64 pages where the size matters, each as one handle and as
many. What a call from Python costs by itself (the cheapest call, ``cuDriverGetVersion``) is measured and subtracted
in ``costs``, the table that the simulated driver takes::

    for function, microseconds in json.load(open("costs.json"))["costs"].items():
        memx.sim.set_cost(function, microseconds)

Where there is no GPU the simulated driver is measured, and the result says so: such numbers are those of the
simulation on this machine's processor.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cuda.bindings import driver

import memx
from memx.replay.device import has_real_driver

PAGES = (1, 8, 64)
LEAST_US = 0.01
NON_BLOCKING = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
DISABLE_TIMING = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST_KINDS = (
    driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST,
    driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST_NUMA,
)


@dataclass(frozen=True)
class Measurement:
    """One function's cost, as called from Python.

    Attributes
    ----------
    pages, handles : int
        What a call was about; 0 where it is about no memory.
    location : str
        "device" or "host", or nothing.
    """

    function: str
    pages: int
    handles: int
    location: str
    median_us: float
    p10_us: float
    p90_us: float
    samples: int


class Clock:
    """Collects the times of calls by what they were about."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, int, int, str], list[float]] = {}

    def call(self, function: str, *arguments: Any, about: tuple[int, int, str] = (0, 0, "")) -> Any:
        """Time one call; its result."""
        call = getattr(driver, function)
        start = time.perf_counter_ns()
        code, *results = call(*arguments)
        passed = time.perf_counter_ns() - start
        if code:
            raise RuntimeError(f"{function} failed with {code.name}")
        self._times.setdefault((function, *about), []).append(passed / 1000)
        return results[0] if results else None

    def measurements(self) -> list[Measurement]:
        """Medians of all that was timed; each series without its first tenth, which warms up."""
        found = []
        for (function, pages, handles, location), times in self._times.items():
            warm = times[len(times) // 10 :]
            low, *_, high = statistics.quantiles(warm, n=10) if len(warm) > 1 else warm * 2
            median = statistics.median(warm)
            found.append(
                Measurement(
                    function,
                    pages,
                    handles,
                    location,
                    round(median, 3),
                    round(low, 3),
                    round(high, 3),
                    len(warm),
                )
            )
        return found


def ok(result: tuple[Any, ...]) -> Any:
    """A call's result; a RuntimeError if it failed."""
    code, *values = result
    if code:
        raise RuntimeError(code.name)
    return values[0] if values else None


def properties(kind: Any) -> driver.CUmemAllocationProp:
    """Of memory at a location."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = kind
    return prop


def access() -> driver.CUmemAccessDesc:
    """Reading and writing for the device."""
    desc = driver.CUmemAccessDesc()
    desc.location.type = DEVICE
    desc.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return desc


def host_kind() -> Any | None:
    """A host location that this driver maps for the device."""
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    for kind in HOST_KINDS:
        code, page = driver.cuMemGetAllocationGranularity(properties(kind), minimum)
        if code:
            continue
        code, handle = driver.cuMemCreate(page, properties(kind), 0)
        if not code:
            ok(driver.cuMemRelease(handle))
            return kind
    return None


def page_bytes() -> int:
    """The granularity of device memory."""
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    return int(ok(driver.cuMemGetAllocationGranularity(properties(DEVICE), minimum)))


def measure_mapping(clock: Clock, kind: Any, location: str, page: int, repeat: int) -> None:
    """Reserve, create, map, grant, unmap and release: one handle of many pages, and many of one."""
    grant = access()
    for count in PAGES:
        for handles in dict.fromkeys((1, count)):
            size, each = count * page, count * page // handles
            one, all_ = (count // handles, 1, location), (count, handles, location)
            for _ in range(max(10, repeat // count)):
                va = int(clock.call("cuMemAddressReserve", size, 0, 0, 0, about=(count, 0, "")))
                made = [clock.call("cuMemCreate", each, properties(kind), 0, about=one) for _ in range(handles)]
                for number, handle in enumerate(made):
                    clock.call("cuMemMap", va + number * each, each, 0, handle, 0, about=one)
                clock.call("cuMemSetAccess", va, size, [grant], 1, about=all_)
                clock.call("cuMemGetAccess", grant.location, va, about=(0, 0, ""))
                clock.call("cuMemGetAddressRange", va)
                clock.call("cuMemRelease", clock.call("cuMemRetainAllocationHandle", va), about=(0, 0, "referenced"))
                clock.call("cuMemUnmap", va, size, about=all_)
                for handle in made:
                    clock.call("cuMemRelease", handle, about=one)
                clock.call("cuMemAddressFree", va, size, about=(count, 0, ""))


def measure_allocation(clock: Clock, page: int, repeat: int, stream: Any) -> None:
    """The driver's own allocators, of device and of pinned memory."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    for count in PAGES:
        size = count * page
        for _ in range(max(10, repeat // count)):
            va = clock.call("cuMemAlloc", size, about=(count, 1, "device"))
            clock.call("cuPointerGetAttribute", attribute, va)
            clock.call("cuPointerGetAttributes", 1, [attribute], va)
            clock.call("cuMemFree", va, about=(count, 1, "device"))
            pooled = clock.call("cuMemAllocAsync", size, stream, about=(count, 1, "device"))
            clock.call("cuMemFreeAsync", pooled, stream, about=(count, 1, "device"))
            ok(driver.cuStreamSynchronize(stream))
        for _ in range(max(5, repeat // (8 * count))):
            pinned = clock.call("cuMemAllocHost", size, about=(count, 1, "host"))
            clock.call("cuMemFreeHost", pinned, about=(count, 1, "host"))
    for _ in range(repeat):
        clock.call("cuMemGetInfo")


def context_events(context: Any) -> bool:
    """Whether this driver records events of contexts."""
    event = ok(driver.cuEventCreate(DISABLE_TIMING))
    try:
        return not driver.cuCtxRecordEvent(context, event)[0]
    except RuntimeError:  # it does not have the function
        return False
    finally:
        ok(driver.cuEventDestroy(event))


def measure_streams(clock: Clock, repeat: int, context: Any, stream: Any) -> None:
    """Streams, events, and what is asked of them."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    other = ok(driver.cuStreamCreate(NON_BLOCKING))
    has_context_events = context_events(context)
    for _ in range(repeat):
        clock.call("cuDriverGetVersion")
        event = clock.call("cuEventCreate", DISABLE_TIMING)
        clock.call("cuEventRecord", event, stream)
        clock.call("cuStreamWaitEvent", other, event, 0)
        ok(driver.cuCtxSynchronize())
        clock.call("cuEventQuery", event)
        clock.call("cuEventSynchronize", event)
        if has_context_events:
            clock.call("cuCtxRecordEvent", context, event)
        ok(driver.cuCtxSynchronize())
        clock.call("cuEventDestroy", event)
        clock.call("cuStreamGetId", stream)
        clock.call("cuStreamIsCapturing", stream)
        clock.call("cuThreadExchangeStreamCaptureMode", mode)
        clock.call("cuStreamQuery", stream)
        clock.call("cuStreamSynchronize", stream)
        clock.call("cuCtxSynchronize")
        clock.call("cuCtxGetCurrent")
        clock.call("cuCtxSetCurrent", context)
    ok(driver.cuStreamDestroy(other))


def measure_work(clock: Clock, page: int, repeat: int, stream: Any) -> None:
    """Launches, copies and fills: what it costs to queue them."""
    ptx = (Path(memx.__file__).parent / "kernels.ptx").read_bytes()
    module = ok(driver.cuModuleLoadData(ptx + b"\0"))
    touch = ok(driver.cuModuleGetFunction(module, b"memx_touch"))
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
    device, pinned = int(ok(driver.cuMemAlloc(2 * page))), int(ok(driver.cuMemAllocHost(page)))
    for _ in range(repeat):
        parameters = ((device, 512, 1), kinds)
        clock.call("cuLaunchKernel", touch, 1, 1, 1, 32, 1, 1, 0, stream, parameters, 0)
        clock.call("cuMemcpyAsync", device, pinned, page, stream)
        clock.call("cuMemcpyHtoDAsync", device, pinned, page, stream)
        clock.call("cuMemcpyDtoHAsync", pinned, device, page, stream)
        clock.call("cuMemcpyDtoDAsync", device, device + page, page, stream)
        clock.call("cuMemsetD8Async", device, 0, page, stream)
        clock.call("cuMemsetD32Async", device, 0, page // 4, stream)
        ok(driver.cuStreamSynchronize(stream))
    for _ in range(max(10, repeat // 4)):
        clock.call("cuMemcpyHtoD", device, pinned, page, about=(1, 1, "device"))
        clock.call("cuMemcpyDtoH", pinned, device, page, about=(1, 1, "device"))
        clock.call("cuMemcpyDtoD", device, device + page, page, about=(1, 1, "device"))
        ok(driver.cuCtxSynchronize())
    ok(driver.cuMemFreeHost(pinned))
    ok(driver.cuMemFree(device))
    ok(driver.cuModuleUnload(module))


def measure_bandwidth(page: int, repeat: int, stream: Any) -> dict[str, dict[str, float]]:
    """GB/s of copies of so many pages between pinned and device memory, waited for."""
    size = max(PAGES) * page
    device, pinned = int(ok(driver.cuMemAlloc(size))), int(ok(driver.cuMemAllocHost(size)))
    directions: dict[str, Callable[[int], Any]] = {
        "host_to_device": lambda count: driver.cuMemcpyHtoDAsync(device, pinned, count, stream),
        "device_to_host": lambda count: driver.cuMemcpyDtoHAsync(pinned, device, count, stream),
    }
    rates: dict[str, dict[str, float]] = {}
    for name, copy in directions.items():
        rates[name] = {}
        for count in PAGES:
            times = []
            for _ in range(max(5, repeat // (4 * count))):
                start = time.perf_counter_ns()
                ok(copy(count * page))
                ok(driver.cuStreamSynchronize(stream))
                times.append(time.perf_counter_ns() - start)
            rates[name][str(count)] = round(count * page / statistics.median(times), 3)
    ok(driver.cuMemFreeHost(pinned))
    ok(driver.cuMemFree(device))
    return rates


def table(measurements: list[Measurement], overhead_us: float) -> dict[str, float]:
    """One number a function: of one page in one handle, less what calling from Python costs."""
    costs: dict[str, float] = {}
    for one in measurements:
        if one.pages <= 1 and one.handles <= 1 and one.location != "referenced" and one.function not in costs:
            costs[one.function] = round(max(one.median_us - overhead_us, LEAST_US), 3)
    return costs


def measure(repeat: int) -> dict[str, Any]:
    """Everything, of device 0."""
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxSetCurrent(context))
    stream = ok(driver.cuStreamCreate(NON_BLOCKING))
    page, host = page_bytes(), host_kind()
    name = ok(driver.cuDeviceGetName(64, 0)).partition(b"\0")[0].decode().strip()
    version = int(ok(driver.cuDriverGetVersion()))
    clock = Clock()
    measure_streams(clock, repeat, context, stream)
    measure_work(clock, page, repeat, stream)
    measure_mapping(clock, DEVICE, "device", page, repeat)
    if host is not None:
        measure_mapping(clock, host, "host", page, repeat // 4)
    measure_allocation(clock, page, repeat, stream)
    bandwidth = measure_bandwidth(page, repeat, stream)
    ok(driver.cuStreamDestroy(stream))
    measurements = clock.measurements()
    overhead_us = next(one.median_us for one in measurements if one.function == "cuDriverGetVersion")
    simulated = memx.sim.active()
    now = datetime.now(timezone.utc).date().isoformat()
    return {
        "label": f"{'simulated: ' if simulated else ''}{name}, driver {version // 1000}.{version % 1000 // 10}, {now}",
        "simulated": simulated,
        "device": name,
        "driver_version": version,
        "date": now,
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "page_bytes": page,
        "host_location": host.name if host is not None else None,
        "call_overhead_us": overhead_us,
        "costs": table(measurements, overhead_us),
        "bandwidth_gb_per_s": bandwidth,
        "measurements": [asdict(one) for one in measurements],
    }


def show(result: dict[str, Any]) -> None:
    """A table for people."""
    print(f"{'function':36} {'pages':>5} {'handles':>7} {'where':>10} {'median us':>10} {'p90 us':>9}")
    for one in result["measurements"]:
        print(
            f"{one['function']:36} {one['pages'] or '':>5} {one['handles'] or '':>7} {one['location']:>10} "
            f"{one['median_us']:10.2f} {one['p90_us']:9.2f}"
        )
    for direction, rates in result["bandwidth_gb_per_s"].items():
        print(f"{direction}: " + ", ".join(f"{pages} pages {rate:.1f} GB/s" for pages, rate in rates.items()))
    print(result["label"])


def main() -> int:
    """Measure, print a table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    parser.add_argument("--repeat", type=int, default=200, help="calls of each kind at one page")
    parser.add_argument(
        "--simulate", action="store_true", help="measure the simulated driver even where there is a GPU"
    )
    arguments = parser.parse_args()
    if arguments.simulate or not has_real_driver():
        memx.simulate(memory="1GiB", host_memory="1GiB")
    result = measure(arguments.repeat)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
