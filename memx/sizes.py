"""Sizes as people write them: ``4096``, ``64KiB``, ``2MiB``, ``16GiB``, ``4p``."""

from __future__ import annotations

import re

from .errors import InvalidValueError

__all__ = ["format_size", "parse_size"]

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(-?\d+)([A-Za-z]*)")


def parse_size(text: int | str, page: int | None = None) -> int:
    """Bytes of a size written as an integer or a string.

    Parameters
    ----------
    text : int or str
        Bytes, or a whole number followed by ``KiB``, ``MiB``, ``GiB``, ``TiB`` or ``p`` (pages).
    page : int, optional
        Bytes of a page; needed where ``text`` is in pages.

    Returns
    -------
    int
        Bytes; negative numbers pass, for the callee to refuse.

    Raises
    ------
    InvalidValueError
        Anything else, with the offending text in the message.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str):
        match = _SIZE.fullmatch(text.strip())
        if match:
            number, unit = match.groups()
            if unit in _UNITS:
                return int(number) * _UNITS[unit]
            if unit == "p":
                if page is None:
                    raise InvalidValueError(f"size {text!r} is in pages, and the page size is not known here")
                return int(number) * page
    raise InvalidValueError(f"not a size: {text!r} (write bytes, or a number with KiB, MiB, GiB, TiB or p)")


def format_size(nbytes: int) -> str:
    """A size for people to read, three digits, or four where it has them: ``1.5 GiB``, ``1005 KiB``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{nbytes} B" if unit == "B" else f"{value:.{3 if abs(value) < 999.5 else 4}g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"
