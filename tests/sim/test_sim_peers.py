"""The oracle over two devices and several contexts, and access that comes and goes with contexts."""

from __future__ import annotations

import pytest

from .machine import isolated

_START = """
from sim.conftest import Streams
streams = Streams()
second = call("cuDevicePrimaryCtxRetain", 1)
s = streams.nonblocking()
r = Range((1,))
call("cuMemSetAccess", r.va, PAGE, [access(), access(DEVICE, 1)], 2)
call("cuCtxSetCurrent", second)
t = streams.nonblocking()
def on(context_, stream, write=1):
    call("cuCtxSetCurrent", context_)
    kernels("memx_touch", stream, r.va, PAGE, write)
def found():
    print([(race["kind"], race["first"]["name"], race["second"]["name"]) for race in sim.races()])
"""

CASES = {
    "both_write": ("on(second, t); on(context, s)", [("race", "memx_touch", "memx_touch")]),
    "ordered_by_an_event": ("on(second, t); streams.order(t, s); on(context, s)", []),
    "waited_for": ("on(second, t); call('cuCtxSynchronize'); on(context, s)", []),
    "the_other_context_waited_for": (
        "on(second, t); call('cuCtxSetCurrent', context); call('cuCtxSynchronize'); on(context, s)",
        [("race", "memx_touch", "memx_touch")],
    ),
    "both_read": ("on(second, t, 0); on(context, s, 0)", []),
    "access_taken_from_the_other": (
        "on(context, s); call('cuMemSetAccess', r.va, PAGE, [access(DEVICE, 1, NO_ACCESS)], 1)",
        [],
    ),
    "access_taken_from_the_user": (
        "on(second, t); call('cuMemSetAccess', r.va, PAGE, [access(DEVICE, 1, NO_ACCESS)], 1)",
        [("unmap-under-use", "memx_touch", "cuMemSetAccess")],
    ),
    "context_event_of_the_other": (
        "on(second, t); event = streams.event(); call('cuCtxRecordEvent', second, event);"
        "call('cuStreamWaitEvent', s, event, 0); on(context, s)",
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_two_devices_are_ordered_or_race(case: str) -> None:
    steps, expected = CASES[case]
    assert isolated(f"{_START}{steps}\nfound()", devices=2) == f"{expected}\n"


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("call('cuMemcpyPeer', b, second, a, context, 512)", []),
        (
            "call('cuMemcpyPeerAsync', b, second, a, context, 512, s)",
            [("race", "memx_touch", "cuMemcpyPeerAsync"), ("race", "cuMemcpyPeerAsync", "memx_touch")],
        ),
    ],
    ids=["in_order_of_both_contexts", "in_order_of_its_stream"],
)
def test_the_order_of_copies_between_devices(copy: str, expected: list[tuple[str, ...]]) -> None:
    out = isolated(
        f"""{_START}
b = int(call("cuMemAlloc", 512))
kernels("memx_touch", t, b, 512, 1)
call("cuCtxSetCurrent", context)
a = int(call("cuMemAlloc", 512))
{copy}
call("cuCtxSetCurrent", second)
kernels("memx_touch", streams.nonblocking(), b, 512, 0)
found()
""",
        devices=2,
    )
    assert out == f"{expected}\n"


def test_peer_access_is_every_contexts_of_the_device_until_the_last_gives_it_up() -> None:
    out = isolated(
        """
second = call("cuDevicePrimaryCtxRetain", 1)
call("cuCtxSetCurrent", second)
p = int(call("cuMemAlloc", 512))
call("cuCtxSetCurrent", context)
call("cuCtxEnablePeerAccess", second, 0)
other = call("cuCtxCreate", None, 0, 0)
print(code("cuCtxEnablePeerAccess", context, 0), code("cuCtxEnablePeerAccess", second, 0))
call("cuCtxDestroy", other)
call("cuCtxSetCurrent", context)
kernels("memx_touch", 0, p, 512, 1)
print(code("cuCtxSynchronize"))
call("cuCtxDisablePeerAccess", second)
kernels("memx_touch", 0, p, 512, 1)
print(code("cuCtxSynchronize"))
""",
        devices=2,
    )
    assert out == "PEER_ACCESS_UNSUPPORTED SUCCESS\nSUCCESS\nILLEGAL_ADDRESS\n"


def test_access_given_up_under_use_is_found() -> None:
    out = isolated(
        """
second = call("cuDevicePrimaryCtxRetain", 1)
call("cuCtxSetCurrent", second)
p = int(call("cuMemAlloc", 512))
t = call("cuStreamCreate", NON_BLOCKING)
kernels("memx_touch", t, p, 512, 0)
call("cuCtxSetCurrent", context)
call("cuCtxEnablePeerAccess", second, 0)
s = call("cuStreamCreate", NON_BLOCKING)
kernels("memx_touch", s, p, 512, 0)
call("cuCtxDisablePeerAccess", second)
(race,) = sim.races()
print(race["kind"], race["first"]["stream"] == int(call("cuStreamGetId", s)), race["second"]["name"])
""",
        devices=2,
    )
    assert out == "unmap-under-use True cuCtxDisablePeerAccess\n"


def test_access_ends_with_its_context() -> None:
    out = isolated(
        """
second = call("cuDevicePrimaryCtxRetain", 1)
call("cuCtxSetCurrent", second)
p = int(call("cuMemAlloc", 512))
call("cuCtxSetCurrent", context)
call("cuCtxEnablePeerAccess", second, 0)
call("cuDevicePrimaryCtxReset", 0)
call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", 0))
kernels("memx_touch", 0, p, 512, 1)
print(code("cuCtxSynchronize"), code("cuCtxEnablePeerAccess", second, 0))
""",
        devices=2,
    )
    assert out == "ILLEGAL_ADDRESS ILLEGAL_ADDRESS\n"
