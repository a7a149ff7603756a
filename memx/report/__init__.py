"""Pictures of what memx did. They need matplotlib, an optional extra."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidStateError, InvalidValueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MissingMatplotlibError", "check_picture", "new_figure", "save_figure"]


class MissingMatplotlibError(InvalidStateError):
    """A picture was asked for and matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("pictures need matplotlib: pip install 'memx[plot]'")


def check_picture(path: Path) -> None:
    """Find out before the work whether a picture can be made of it.

    Raises
    ------
    MissingMatplotlibError
    InvalidValueError
        There is no such folder, or no such kind of picture.
    """
    figure = new_figure(1, 1)
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise InvalidValueError(f"{path}: a picture's name must end in .png, .svg or .pdf")
    if not path.absolute().parent.is_dir():
        raise InvalidValueError(f"{path}: there is no such folder")


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
    InvalidValueError
        The file cannot be written.
    """
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror or error}") from None
