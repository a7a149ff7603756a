"""The simulated CUDA driver: put it in this process, steer it, ask what it saw.

Everything but :func:`simulate` needs the simulated driver to be there and raises
:class:`memx.InvalidStateError` otherwise.
"""

from .control import (
    calls,
    clear_races,
    costs,
    fail,
    hold,
    modelled_us,
    race_count,
    races,
    release,
    reset_counts,
    set_cost,
    usage,
)
from .library import active, libraries
from .start import simulate, simulate_from_environment
from .view import view

__all__ = [
    "active",
    "calls",
    "clear_races",
    "costs",
    "fail",
    "hold",
    "libraries",
    "modelled_us",
    "race_count",
    "races",
    "release",
    "reset_counts",
    "set_cost",
    "simulate",
    "simulate_from_environment",
    "usage",
    "view",
]
