"""An estimate as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import InvalidValueError
from .history import CATEGORIES
from .traffic import WAYS

__all__ = ["page_of", "write_page"]


def page_of(report: dict[str, Any]) -> str:
    """The page's text."""
    template = (files(__package__) / "page.html").read_text(encoding="utf-8")
    # Nothing of the report can end the script element or begin a comment there.
    data = json.dumps({**report, "categories": CATEGORIES, "ways": WAYS}).replace("<", "\\u003c")
    return template.replace("{{TITLE}}", html.escape(report["program"] or "program")).replace("{{DATA}}", data)


def write_page(path: Path, report: dict[str, Any]) -> None:
    """Write it.

    Raises
    ------
    InvalidValueError
        The file cannot be written.
    """
    try:
        path.write_text(page_of(report), encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
