"""memx: a GPU memory manager that backs addresses page by page, as late as it can.

See :class:`MemoryResource` for the allocator, :mod:`memx.plan` for offline layouts, :mod:`memx.trace` for event
traces and :mod:`memx.sim` for the simulated device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import (
    DriverError,
    InvalidStateError,
    InvalidValueError,
    MemxError,
    OutOfMemoryError,
    PlanError,
    TraceError,
)
from .sim import simulate, simulate_from_environment

if TYPE_CHECKING:
    from . import cupy, plan, sim, torch, trace
    from .expectation import Expectation, expectations
    from .observations import Residency, Thrashing
    from .resource import Buffer, MemoryResource

__version__ = "0.1.0"

__all__ = [
    "Buffer",
    "DriverError",
    "Expectation",
    "InvalidStateError",
    "InvalidValueError",
    "MemoryResource",
    "MemxError",
    "OutOfMemoryError",
    "PlanError",
    "Residency",
    "Thrashing",
    "TraceError",
    "cupy",
    "expectations",
    "plan",
    "sim",
    "simulate",
    "torch",
    "trace",
]

# What needs cuda.core or numpy is imported when it is first asked for, so that the command line starts at once.
_LAZY = {
    "Buffer": "resource",
    "Expectation": "expectation",
    "MemoryResource": "resource",
    "Residency": "observations",
    "Thrashing": "observations",
    "expectations": "expectation",
}
_MODULES = {"cupy", "plan", "report", "resource", "sim", "torch", "trace"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


simulate_from_environment()
