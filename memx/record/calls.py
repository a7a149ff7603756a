"""Doing something before a function of PyTorch's runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["before"]


def before(owner: Any, name: str, action: Callable[[], object]) -> None:
    """Have ``owner.name`` call ``action()`` first, each time."""
    whole = getattr(owner, name)

    @functools.wraps(whole)
    def preceded(*arguments: Any, **named: Any) -> Any:
        action()
        return whole(*arguments, **named)

    setattr(owner, name, preceded)
