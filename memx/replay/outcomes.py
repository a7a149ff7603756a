"""How a call ended, in the words that a trace's ``expect`` uses."""

from __future__ import annotations

from ..errors import DriverError, InvalidStateError, InvalidValueError, OutOfMemoryError

__all__ = ["EXPECTED_ERRORS", "is_expected", "outcome_of"]

_OUT_OF_MEMORY = 2

#: Errors that are an outcome of an operation, not a fault of the replay.
EXPECTED_ERRORS = (
    OutOfMemoryError,
    DriverError,
    InvalidStateError,
    InvalidValueError,
    OverflowError,
    TypeError,
)


def outcome_of(error: BaseException) -> str:
    """ "oom", "invalid", or "driver" for a driver error that is neither."""
    if isinstance(error, OutOfMemoryError):
        return "oom"
    if isinstance(error, DriverError):
        return "oom" if error.code == _OUT_OF_MEMORY else "driver"
    return "invalid"


def is_expected(expect: str, outcome: str) -> bool:
    """Whether an outcome ("ok" or :func:`outcome_of`) is what a trace allows."""
    if expect == "error":
        return outcome in ("oom", "invalid")
    return expect in (outcome, "any")
