"""Pictures of what memx did. They need matplotlib, an optional extra."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MemxError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MissingMatplotlibError", "new_figure", "save_figure"]


class MissingMatplotlibError(MemxError):
    """A picture was asked for and matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures need matplotlib: pip install 'memx[plot]'")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that no window or global state knows of.

    Raises
    ------
    MissingMatplotlibError
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingMatplotlibError from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the suffix says as what.

    Raises
    ------
    MemxError
        The file cannot be written, or not as that kind.
    """
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise MemxError(f"cannot write {path}: {error}") from None
