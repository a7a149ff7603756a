"""What the simulated driver saw and counted, its streams held, its calls made to fail."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol, SupportsInt, cast

from ..errors import InvalidValueError
from .library import ask_json, check, positive, require


class HasStream(Protocol):
    """Anything that follows the ``__cuda_stream__`` protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Protocol version and stream handle."""


def races() -> list[dict[str, Any]]:
    """Conflicting accesses without an order, and unmaps under running work, since the last clear."""
    return cast("list[dict[str, Any]]", ask_json("memxsim_races_json"))


def race_count() -> int:
    """How many there were; :func:`races` may keep fewer."""
    return int(require().memxsim_race_count())


def clear_races() -> None:
    """Forget the races found so far."""
    require().memxsim_clear_races()


def calls() -> dict[str, int]:
    """Calls by driver function, failed ones too."""
    return cast("dict[str, int]", ask_json("memxsim_calls_json"))


def usage() -> dict[str, Any]:
    """What exists now: device and host bytes, handles, mappings, reservations, streams, events, modules."""
    return cast("dict[str, Any]", ask_json("memxsim_usage_json"))


def costs() -> dict[str, float]:
    """The model's microseconds a call, by driver function."""
    return cast("dict[str, float]", ask_json("memxsim_costs_json"))


def set_cost(function: str, microseconds: float) -> None:
    """Replace a call's modelled cost, by one measured on a GPU for instance."""
    check(require().memxsim_set_cost(function.encode(), microseconds), f"no cost for {function!r}")


def modelled_us() -> float:
    """The costs of all calls so far: a model, not a measurement."""
    return float(require().memxsim_modelled_us())


def reset_counts() -> None:
    """Start counting calls and modelled time anew."""
    require().memxsim_reset_counts()


def hold(stream: HasStream | SupportsInt) -> None:
    """Stop a stream: work queued on it does not start until it is released.

    A host wait that depends on it, through other streams too, releases it.
    """
    check(require().memxsim_hold(ctypes.c_void_p(_handle(stream))), "no such stream")


def release(stream: HasStream | SupportsInt) -> None:
    """Let a held stream go on; nothing happens to one that is not held."""
    check(require().memxsim_release(ctypes.c_void_p(_handle(stream))), "no such stream")


def fail(
    name: str,
    *,
    at: int = 0,
    every: int = 0,
    probability: float = 0.0,
    code: int | str = "OUT_OF_MEMORY",
    start: int = 0,
) -> None:
    """Make calls of a driver function fail.

    Parameters
    ----------
    name : str
        The function's base name, ``"cuMemMap"``.
    at : int
        The at-th call from now on fails, once.
    every : int
        Each every-th call fails.
    probability : float
        Each call fails with it.
    code : int or str
        The ``CUresult``, or its name with or without ``CUDA_ERROR_``.
    start : int
        All calls from the start-th on fail, as under a driver that shuts down.

    All zero cancels what was set for the function.
    """
    number = code if isinstance(code, int) else _result_code(code)
    answer = require().memxsim_fail(
        name.encode(),
        positive(at, "at", 0),
        positive(every, "every", 0),
        probability,
        positive(start, "start", 0),
        number,
    )
    check(answer, f"no driver function {name!r}, or a probability outside 0 to 1")


def _result_code(name: str) -> int:
    from cuda.bindings.driver import CUresult

    full = name if name.startswith("CUDA_") else f"CUDA_ERROR_{name}"
    code = getattr(CUresult, full, None)
    if code is None:
        raise InvalidValueError(f"no CUDA error is called {name!r}")
    return int(code)


def _handle(stream: HasStream | SupportsInt) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    return int(protocol()[1]) if protocol is not None else int(cast(SupportsInt, stream))
