"""Settings from the environment: ``MEMX_CONF="key:value,key:value"``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidValueError
from .sizes import parse_size

__all__ = ["completed", "from_environment", "parse"]


def _flag(text: str) -> bool:
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise InvalidValueError("it is neither true nor false")


def _mode(text: str) -> str:
    if text not in ("stream", "default", "mutual"):
        raise InvalidValueError("it is not stream, default or mutual")
    return text


def _size(text: str) -> str:
    parse_size(text, page=1)
    return text


_KEYS: Mapping[str, Callable[[str], Any]] = {
    "device_limit": _size,
    "host_limit": _size,
    "reuse": _mode,
    "oversubscribe": _flag,
    "page": _size,
}


def parse(text: str, source: str = "MEMX_CONF") -> dict[str, Any]:
    """The settings in a string.

    Parameters
    ----------
    text : str
        ``key:value`` pairs separated by commas; keys are those of :func:`memx.torch.enable`.
    source : str
        Where it comes from, for messages.

    Raises
    ------
    InvalidValueError
        An unknown key, one given twice, or a value that the key cannot have.
    """
    out: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, colon, value = (part.strip() for part in pair.partition(":"))
        if not colon or key not in _KEYS:
            raise InvalidValueError(f"{source}: {pair!r} is not understood; it takes key:value with {', '.join(_KEYS)}")
        if key in out:
            raise InvalidValueError(f"{source}: {key} is given twice")
        try:
            out[key] = _KEYS[key](value)
        except InvalidValueError as error:
            raise InvalidValueError(f"{source}: {key}:{value}: {error}") from None
    return out


def from_environment() -> dict[str, Any]:
    """The settings of ``MEMX_CONF``; none if it is not set."""
    return parse(os.environ.get("MEMX_CONF", ""))


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, and from ``MEMX_CONF`` what is not (None)."""
    return from_environment() | {key: value for key, value in given.items() if value is not None}
