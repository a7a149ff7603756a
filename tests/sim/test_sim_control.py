"""Fault injection, counts, costs, version-dependent entry points, fork and exit."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver

from memx import sim

from .machine import PAGE, call, code, isolated, properties

pytestmark = pytest.mark.usefixtures("no_races")


def attempt() -> str:
    result, handle = driver.cuMemCreate(PAGE, properties(), 0)
    if int(result) == 0:
        call("cuMemRelease", handle)
    return result.name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")


def test_the_nth_call_fails_once() -> None:
    sim.fail("cuMemCreate", at=3, code="OUT_OF_MEMORY")
    assert [attempt() for _ in range(5)] == ["SUCCESS", "SUCCESS", "OUT_OF_MEMORY", "SUCCESS", "SUCCESS"]


def test_every_nth_call_fails_until_cancelled() -> None:
    sim.fail("cuMemCreate", every=2, code="INVALID_VALUE")
    assert [attempt() for _ in range(5)] == ["SUCCESS", "INVALID_VALUE"] * 2 + ["SUCCESS"]
    sim.fail("cuMemCreate", every=0)
    assert [attempt() for _ in range(5)] == ["SUCCESS"] * 5


def test_all_calls_from_one_on_fail() -> None:
    used = sim.usage()
    ctypes.CDLL("libcuda.so.1").memxsim_fail(
        b"cuMemCreate", ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_double(0), ctypes.c_uint64(2), 4
    )
    assert [attempt() for _ in range(4)] == ["SUCCESS"] + ["DEINITIALIZED"] * 3
    sim.fail("cuMemCreate", every=0)
    assert attempt() == "SUCCESS"
    assert sim.usage() == used


def test_calls_fail_with_a_probability_and_a_seed() -> None:
    script = """
sim.fail("cuMemCreate", probability=0.25, code="OUT_OF_MEMORY")
print("".join("x" if code("cuMemCreate", PAGE, properties(), 0) != "SUCCESS" else "." for _ in range(400)))
"""
    first = isolated(script, seed=5)
    assert first == isolated(script, seed=5)
    assert first != isolated(script, seed=6)
    assert 60 < first.count("x") < 140


def test_a_call_that_fails_has_no_effect() -> None:
    va = int(call("cuMemAddressReserve", PAGE, 0, 0, 0))
    handle = call("cuMemCreate", PAGE, properties(), 0)
    sim.fail("cuMemMap", at=1, code="OUT_OF_MEMORY")
    assert code("cuMemMap", va, PAGE, 0, handle, 0) == "OUT_OF_MEMORY"
    call("cuMemMap", va, PAGE, 0, handle, 0)
    sim.fail("cuMemUnmap", at=1, code="UNKNOWN")
    assert code("cuMemUnmap", va, PAGE) == "UNKNOWN"
    call("cuMemUnmap", va, PAGE)
    call("cuMemRelease", handle)
    call("cuMemAddressFree", va, PAGE)


def test_an_injected_sticky_error_sticks() -> None:
    out = isolated(
        """
sim.fail("cuMemMap", at=1, code="ILLEGAL_ADDRESS")
print(code("cuMemMap", 0, PAGE, 0, 0, 0), code("cuStreamQuery", 0), code("cuMemCreate", PAGE, properties(), 0))
"""
    )
    assert out == "ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS\n"


def test_calls_are_counted_by_base_name_failed_ones_too() -> None:
    sim.reset_counts()
    call("cuMemFree", call("cuMemAlloc", 8))
    code("cuMemAlloc", 0)
    call("cuCtxSynchronize")
    assert sim.calls() == {"cuMemAlloc": 2, "cuMemFree": 1, "cuCtxSynchronize": 1}


def test_modelled_time_is_the_sum_of_costs() -> None:
    assert sim.costs()["cuMemSetAccess"] == 37
    sim.reset_counts()
    assert sim.modelled_us() == 0
    sim.set_cost("cuMemAlloc", 1.5)
    sim.set_cost("cuMemFree", 0.25)
    for _ in range(4):
        call("cuMemFree", call("cuMemAlloc", 8))
    assert sim.modelled_us() == pytest.approx(4 * 1.75)


_FORMS = """
lib = ctypes.CDLL("libcuda.so.1")
def find(name, version, flags=0):
    at, status = ctypes.c_void_p(), ctypes.c_int()
    assert lib.cuGetProcAddress_v2(name, ctypes.byref(at), version, ctypes.c_uint64(flags), ctypes.byref(status)) == 0
    return at.value, status.value
"""


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("cuCtxCreate", (3020, 11040, 12050)),
        ("cuStreamGetCaptureInfo", (10010, 11030, 12030)),
        ("cuLaunchHostFunc", (10000, 13020)),
        ("cuStreamGetCtx", (9020, 12050)),
        ("cuCtxGetDevice", (2000, 13000)),
        ("cuCtxSynchronize", (2000, 13000)),
    ],
)
def test_entry_points_follow_the_version_asked_for(name: str, versions: tuple[int, ...]) -> None:
    out = isolated(
        _FORMS
        + f"""
versions = {versions!r}
at = [find({name!r}.encode(), version)[0] for version in versions]
assert len(set(at)) == len(at) and None not in at
assert [find({name!r}.encode(), version - 1)[0] for version in versions[1:]] == at[:-1]
""",
        start=False,
    )
    assert out == ""


def test_entry_points_that_do_not_exist() -> None:
    out = isolated(
        _FORMS
        + """
print(find(b"cuNoSuchThing", 13000), find(b"cuStreamBeginCapture", 2000), find(b"cuMemAlloc_v2", 13000))
print(find(b"cuMemAlloc", 3020)[0] == find(b"cuMemAlloc", 13000)[0])
""",
        start=False,
    )
    assert out == "(None, 1) (None, 2) (None, 1)\nTrue\n"


def test_an_older_driver_lacks_what_came_later() -> None:
    out = isolated(
        _FORMS
        + """
print(find(b"cuCtxRecordEvent", 13000), find(b"cuMemCreate", 13000)[1], find(b"cuStreamGetId", 13000)[1])
print(find(b"cuCtxCreate", 13000)[0] == find(b"cuCtxCreate", 11040)[0])
print(lib.cuCtxRecordEvent(None, None), call("cuDriverGetVersion"))
""",
        driver_version=12040,
    )
    assert out == "(None, 1) 0 0\nTrue\n801 12040\n"


def test_host_functions_may_not_call_the_driver() -> None:
    out = isolated(
        """
from sim.world import host_function
seen = []
call("cuLaunchHostFunc", 0, *host_function(lambda: seen.append(code("cuMemAlloc", 8))))
call("cuCtxSynchronize")
print(seen, code("cuMemAlloc", 8))
"""
    )
    assert out == "['NOT_PERMITTED'] SUCCESS\n"


def test_per_thread_forms_use_the_threads_own_default_stream() -> None:
    out = isolated(
        _FORMS
        + """
get_id = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def stream_id(function):
    out = ctypes.c_ulonglong()
    assert function(None, ctypes.byref(out)) == 0
    return out.value
legacy, own = (get_id(find(b"cuStreamGetId", 12000, flags)[0]) for flags in (1, 2))
print(stream_id(legacy) == int(call("cuStreamGetId", 1)), stream_id(own) == int(call("cuStreamGetId", 2)))
print(stream_id(legacy) == int(call("cuStreamGetId", 0)))
r = Range((1,))
fill = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t)
fill = fill(find(b"cuMemsetD8", 12000, 2)[0])
sim.hold(2)
fill(r.va, 1, 8)
print(code("cuStreamQuery", 2), code("cuStreamQuery", 1))
sim.release(2)
"""
    )
    assert out == "True True\nTrue\nNOT_READY SUCCESS\n"


def test_a_child_after_fork_gets_an_error_at_once() -> None:
    out = isolated(
        """
s = call("cuStreamCreate", NON_BLOCKING)
r = Range((1,))
for _ in range(100):
    kernels("memx_stamp", s, r.va, PAGE, 1, 0)
child = os.fork()
if child == 0:
    codes = {code("cuMemAlloc", 8), code("cuStreamSynchronize", s), code("cuCtxSynchronize"), code("cuInit", 0),
             code("cuMemUnmap", r.va, PAGE), code("cuDriverGetVersion")}
    sim.races(); sim.usage(); sim.race_count(); sim.clear_races()
    os._exit(0 if codes == {"NOT_INITIALIZED"} else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), code("cuStreamSynchronize", s))
"""
    )
    assert out == "0 SUCCESS\n"


def test_a_child_may_start_the_driver_its_parent_did_not() -> None:
    out = isolated(
        """
child = os.fork()
if child == 0:
    call("cuInit", 0); set_current(); r = Range((1,)); call("cuMemsetD8", r.va, 0, PAGE); call("cuCtxSynchronize")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        start=False,
    )
    assert out == "7\n"


LEAVING = {
    "queued": "[kernels('memx_stamp', s, r.va, PAGE, 1, 0) for _ in range(1000)]",
    "held": "sim.hold(s); kernels('memx_stamp', s, r.va, PAGE, 1, 0)",
    "callback": """
from sim.world import host_function
call('cuLaunchHostFunc', s, *host_function(lambda: None))
sim.hold(s); call('cuLaunchHostFunc', s, *host_function(lambda: print('never')))""",
    "capturing": "call('cuStreamBeginCapture', s, driver.CUstreamCaptureMode(2))",
    "failed": "kernels('memx_touch', s, 1, 1, 1)",
    "threads": """
kernels('memx_touch', 2, r.va, 1, 1)
def forever():
    call('cuCtxSetCurrent', context)
    while True:
        kernels('memx_touch', 2, r.va, 1, 0); code('cuStreamSynchronize', 2)
threading.Thread(target=forever, daemon=True).start()""",
}


@pytest.mark.parametrize("state", LEAVING)
def test_leaving_in_any_state_is_silent(state: str) -> None:
    assert isolated(f"s = call('cuStreamCreate', NON_BLOCKING); r = Range((1,))\n{LEAVING[state]}", timeout=30) == ""


def test_nothing_works_before_init_but_what_does_not_need_it() -> None:
    out = isolated(
        """
print(code("cuDeviceGetCount"), code("cuMemAlloc", 8), code("cuCtxGetCurrent"))
print(code("cuDriverGetVersion"), call("cuGetErrorName", driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY))
call("cuInit", 0)
print(code("cuMemAlloc", 8), code("cuStreamCreate", 0), code("cuDeviceGet", 1), code("cuInit", 1))
""",
        start=False,
    )
    assert out == (
        "NOT_INITIALIZED NOT_INITIALIZED NOT_INITIALIZED\nSUCCESS b'CUDA_ERROR_OUT_OF_MEMORY'\n"
        "INVALID_CONTEXT INVALID_CONTEXT INVALID_DEVICE INVALID_VALUE\n"
    )


def test_contexts_have_streams_of_their_own() -> None:
    out = isolated(
        """
first = int(call("cuStreamGetId", 1))
other = call("cuCtxCreate", None, 0, 0)
print(int(call("cuStreamGetId", 1)) != first, int(call("cuCtxGetCurrent")) == int(other))
s = call("cuStreamCreate", 0)
p = call("cuMemAlloc", 100)
call("cuCtxDestroy", other)
print(int(call("cuStreamGetId", 1)) == first, code("cuMemFree", p), code("cuStreamQuery", s))
print(sim.usage()["device_bytes"])
"""
    )
    assert out == "True True\nTrue INVALID_VALUE CONTEXT_IS_DESTROYED\n[0]\n"


def test_peers_reach_each_others_allocations_when_enabled() -> None:
    out = isolated(
        """
p = int(call("cuMemAlloc", 512))
second = call("cuDevicePrimaryCtxRetain", 1)
call("cuCtxSetCurrent", second)
print(code("cuCtxEnablePeerAccess", context, 0), code("cuCtxEnablePeerAccess", context, 0))
kernels("memx_touch", 0, p, 512, 1)
print(code("cuCtxSynchronize"), code("cuCtxDisablePeerAccess", context))
kernels("memx_touch", 0, p, 512, 1)
print(code("cuCtxSynchronize"))
call("cuCtxSetCurrent", context)
print(code("cuCtxSynchronize"))
""",
        devices=2,
    )
    assert out == "SUCCESS PEER_ACCESS_ALREADY_ENABLED\nSUCCESS SUCCESS\nILLEGAL_ADDRESS\nSUCCESS\n"
