"""The device a replay runs on: the machine's, or a simulated one made as large as the run needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .. import sim
from ..errors import InvalidStateError, InvalidValueError
from ..sizes import format_size
from ..trace import Trace

__all__ = ["Limits", "has_real_driver", "prepare_device", "resolve_limits"]

_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")
# What the allocator pins for copies and the replay for its counters, and some pages.
_HOST_SLACK = 256 << 20
_DEVICE_SLACK = 16 << 20
_LEAST_SIMULATED = 16 << 30


@dataclass(slots=True, frozen=True)
class Limits:
    """What a replay runs with.

    Attributes
    ----------
    device_limit, host_limit : int
        Bytes.
    page : int
        Bytes of a page.
    reuse : str
        "stream", "default" or "mutual".
    lazy : bool
    eviction : str
        "cost", "lru", "clock" or "planned": as the trace itself says.
    low_water, look_ahead : int
        Bytes; see :class:`memx.MemoryResource`.
    """

    device_limit: int
    host_limit: int
    page: int
    reuse: str
    lazy: bool
    eviction: str = "cost"
    low_water: int = 0
    look_ahead: int = 0


def has_real_driver() -> bool:
    """Whether this machine has a CUDA device; found without loading its driver."""
    return any(Path(name).exists() for name in _DRIVER_FILES)


def resolve_limits(
    trace: Trace,
    *,
    device_limit: int | None = None,
    host_limit: int | None = None,
    reuse: str | None = None,
    lazy: bool | None = None,
    eviction: str = "cost",
    simulated: bool = True,
) -> Limits:
    """Settle each setting: what was asked for, else what the trace's header says, else a default.

    The default limits are all of the device's memory and half of the host's; on a simulated device, where
    both are free to choose, twice what the trace can use.
    """
    plenty = max(_LEAST_SIMULATED, 2 * trace.peak_live_bytes())
    device = _first(device_limit, trace.header.device_limit)
    host = _first(host_limit, trace.header.host_limit)
    if device is None:
        device = plenty if simulated else _device_bytes()
    if host is None:
        host = plenty if simulated else _host_bytes() // 2
    if device < 1:
        raise InvalidValueError("the device limit is 0 bytes; a device needs one page at least")
    return Limits(
        device_limit=device,
        host_limit=host,
        page=trace.header.page,
        reuse=reuse or trace.header.reuse or "default",
        lazy=bool(lazy if lazy is not None else trace.header.lazy),
        eviction=eviction,
    )


def prepare_device(limits: Limits, simulate: bool, contents: bool = True, slack: int = _DEVICE_SLACK) -> bool:
    """Bring a device into this process.

    Parameters
    ----------
    limits : Limits
        A simulated device is made large enough for them.
    simulate : bool
        Use the simulated device; it is refused where a driver is in use already.
    contents : bool
        Whether the run needs memory with contents. If not, a simulated device only keeps accounts, so that
        models larger than this machine's memory can be run.
    slack : int
        Bytes that a simulated device has beyond the limit, for the replay's own use.

    Returns
    -------
    bool
        Whether the device is simulated.

    Raises
    ------
    InvalidStateError
        Another driver is in use in this process, or a simulated device that is too small for the limits.
    """
    if not simulate:
        return False
    try:
        sim.simulate(
            memory=_whole_pages(limits.device_limit + slack, limits.page),
            host_memory=_whole_pages(limits.host_limit + _HOST_SLACK, limits.page),
            page=limits.page,
            accounting_only=not contents,
        )
    except InvalidStateError:
        # Already started in this process, by an earlier replay or by the caller: its size is as it is.
        if not sim.active():
            raise
        there = _device_bytes()
        if there < limits.device_limit:
            raise InvalidStateError(
                f"this process has a simulated device of {format_size(there)} in use, and a limit of "
                f"{format_size(limits.device_limit)} needs a larger one: it can be made in a new process only"
            ) from None
    return True


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _whole_pages(nbytes: int, page: int) -> int:
    return -(-nbytes // page) * page


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _device_bytes() -> int:
    from .driver import Driver

    return Driver(0).total_bytes()
