"""Kinds of values that several commands take, as click callbacks."""

from __future__ import annotations

from fractions import Fraction

import click

from ..errors import InvalidValueError
from ..sizes import parse_size

__all__ = ["as_bytes", "factor", "size"]


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A size in memx's notation, checked, and left as text until the page is known."""
    if value is not None:
        try:
            as_bytes(value, page=1)
        except InvalidValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


def factor(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    """A positive factor, ``1/64`` or ``0.5``."""
    if value is None:
        return None
    try:
        number = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"not a factor such as 1/64 or 0.5: {value!r}", ctx, param) from None
    if number <= 0:
        raise click.BadParameter(f"a factor must be positive: {value!r}", ctx, param)
    return number


def as_bytes(value: str | None, page: int | None = None) -> int | None:
    """A size option in bytes; None stays None.

    Raises
    ------
    InvalidValueError
        It is not a size, negative, or in pages where their size is not known.
    """
    if value is None:
        return None
    nbytes = parse_size(value, page)
    if nbytes < 0:
        raise InvalidValueError(f"a size cannot be negative: {value!r}")
    return nbytes
