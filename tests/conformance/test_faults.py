"""Work that fails its context, and calls whose outcome cuda.h leaves open: each in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest

from .alone import alone

TOUCHES = {
    "reserved, not mapped": """
r = Range(page, (DEVICE, 1), room=2)
kernels("memx_touch", s, r.va + page, 1, 0)""",
    "past a mapping's end": """
r = Range(page, (DEVICE, 1), room=2)
kernels("memx_touch", s, r.va, page + 1, 0)""",
    "mapped without access": """
r = Range(page, (DEVICE, 1), grant=False)
kernels("memx_touch", s, r.va, page, 0)""",
    "access taken away": """
r = Range(page, (DEVICE, 1))
call("cuMemSetAccess", r.va, page, [access(flags=NO_ACCESS)], 1)
kernels("memx_touch", s, r.va, page, 0)""",
    "read only, written": """
r = Range(page, (DEVICE, 1))
call("cuMemSetAccess", r.va, page, [access(flags=READ)], 1)
kernels("memx_touch", s, r.va, page, 1)""",
    "unmapped": """
r = Range(page, (DEVICE, 1))
kernels("memx_touch", s, r.va, page, 0)
call("cuStreamSynchronize", s)
call("cuMemUnmap", r.va, page)
kernels("memx_touch", s, r.va, page, 0)""",
    "mapped again, not granted": """
r = Range(page, (DEVICE, 1))
call("cuMemUnmap", r.va, page)
call("cuMemMap", r.va, page, 0, r.handles[0], 0)
kernels("memx_touch", s, r.va, page, 0)""",
    "null": 'kernels("memx_touch", s, 0, 1, 0)',
}


@pytest.mark.parametrize("what", TOUCHES)
def test_an_address_out_of_reach_fails_the_context(device: Any, what: str) -> None:
    """CUDA_ERROR_ILLEGAL_ADDRESS: leaves the process in an inconsistent state, and further work fails with it."""
    script = f"""
{TOUCHES[what]}
for asked in (("cuStreamSynchronize", s), ("cuStreamQuery", s), ("cuMemAlloc", 256), ("cuCtxSynchronize",)):
    answer(code(*asked))
"""
    assert alone(device, script) == ["ILLEGAL_ADDRESS"] * 4


def test_nothing_works_before_the_driver_is_initialised(device: Any) -> None:
    """CUDA_ERROR_NOT_INITIALIZED: until cuInit."""
    script = """
for asked in (("cuDeviceGetCount",), ("cuMemAlloc", 256), ("cuCtxSynchronize",)):
    answer(code(*asked))
"""
    assert alone(device, script, started=False) == ["NOT_INITIALIZED"] * 3


def test_nothing_works_without_a_context(device: Any) -> None:
    """CUDA_ERROR_INVALID_CONTEXT: where no context is current."""
    script = """
call("cuCtxSetCurrent", None)
for asked in (("cuMemAlloc", 256), ("cuCtxSynchronize",), ("cuStreamCreate", 0), ("cuEventCreate", 0)):
    answer(code(*asked))
"""
    assert alone(device, script) == ["INVALID_CONTEXT"] * 4


def test_a_handle_that_was_released(device: Any) -> None:
    """cuMemRelease: the header leaves open what no handle does; drivers refuse it, and to map it."""
    script = """
handle = call("cuMemCreate", page, properties(), 0)
r = Range(page, room=1)
call("cuMemRelease", handle)
answer(code("cuMemRelease", handle) in REFUSED)
answer(code("cuMemMap", r.va, page, 0, handle, 0) in REFUSED)
"""
    assert alone(device, script) == [True, True]


def test_a_stream_that_was_destroyed(device: Any) -> None:
    """cuStreamDestroy: the handle is none afterwards."""
    script = """
call("cuStreamDestroy", s)
answer(code("cuStreamDestroy", s) in REFUSED | {"CONTEXT_IS_DESTROYED"})
"""
    assert alone(device, script) == [True]
