"""The exceptions that memx raises."""

from __future__ import annotations

__all__ = [
    "DriverError",
    "InvalidStateError",
    "InvalidValueError",
    "MemxError",
    "OutOfMemoryError",
    "PlanError",
    "TraceError",
]


class MemxError(Exception):
    """Base class of every error that memx raises on purpose."""


class OutOfMemoryError(MemxError, MemoryError):
    """A request that no tier can meet; the message says what was asked, what is free and what to change."""


class InvalidStateError(MemxError, RuntimeError):
    """The call is right but not now: freed twice, before a driver is chosen, after a fork."""


class InvalidValueError(MemxError, ValueError):
    """An argument that no state would make right."""


class DriverError(MemxError, RuntimeError):
    """A CUDA driver call failed.

    Attributes
    ----------
    code : int
        The ``CUresult``.
    name : str
        Its name, such as ``"CUDA_ERROR_ILLEGAL_ADDRESS"``.
    call : str
        The driver function.
    """

    def __init__(self, message: str, code: int = 0, name: str = "", call: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.call = call


class TraceError(MemxError, ValueError):
    """A trace file that cannot be read as what it says it is.

    Attributes
    ----------
    line : int
        The line of the file, from 1; 0 where there is none.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class PlanError(MemxError, ValueError):
    """A layout problem or plan that is malformed or does not hold."""
