"""Putting the simulated driver into this process, and the simulated CUDA runtime with it."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ..errors import InvalidStateError, InvalidValueError
from ..sizes import parse_size
from .library import BEFORE_TORCH, RUNTIME, Config, driver_present, libraries, load, loaded, positive

_ALREADY_STARTED = 208  # CUDA_ERROR_ALREADY_MAPPED, from memxsim_configure once cuInit has run


def simulate(
    memory: int | str = "1GiB",
    host_memory: int | str = "4GiB",
    page: int | str = "2MiB",
    devices: int = 1,
    seed: int = 0,
    *,
    host_mappable: bool = True,
    accounting_only: bool = False,
    driver_version: int = 0,
    strict_threads: bool = False,
) -> None:
    """Put the simulated CUDA driver into this process, before the first CUDA call.

    The simulated CUDA runtime comes with it, for whatever links the runtime as a shared library. PyTorch does: call
    this before ``import torch``, and ``"cuda"`` is the simulated device. If it is imported already, a
    ``RuntimeWarning`` says so.

    Parameters
    ----------
    memory : size
        Memory of each device, such as ``"1GiB"``.
    host_memory : size
        What the driver may pin or map of the host.
    page : size
        Allocation granularity, a power of two from 4 KiB on; 2 MiB as on hardware.
    devices : int
        How many.
    seed : int
        For fault injection with a probability.
    host_mappable : bool
        Whether host memory can be mapped at a device address, as newer drivers can.
    accounting_only : bool
        Keep no contents and no mappings, for runs with more pages than a process may map.
    driver_version : int
        What the driver says that it is, such as 12080; 0: the newest simulated.
    strict_threads : bool
        What one host thread waited for, another does not know for the race oracle, whatever locks they share. For
        programs whose threads pass nothing on: the simulator cannot see that they do.

    Raises
    ------
    InvalidStateError
        A driver is already in use in this process.
    InvalidValueError
        A size that is not one, or a configuration that the simulated driver refuses.
    """
    page_bytes = parse_size(page)
    config = Config(
        device_bytes=positive(parse_size(memory, page_bytes), "memory"),
        host_bytes=positive(parse_size(host_memory, page_bytes), "host_memory", least=0),
        page_bytes=positive(page_bytes, "page"),
        devices=positive(devices, "devices"),
        accounting_only=accounting_only,
        seed=seed & (2**64 - 1),
        host_mappable=host_mappable,
        driver_version=driver_version,
    )
    library = loaded()
    if library is None:
        if driver_present():
            raise InvalidStateError(
                "a CUDA driver is already in use in this process; call memx.simulate() before the first CUDA call"
            )
        library = load()
    library.memxsim_set_thread_clocks(strict_threads)  # refused as the configuration is
    code = library.memxsim_configure(ctypes.byref(config))
    if code == _ALREADY_STARTED:
        raise InvalidStateError("the simulated driver is already in use in this process")
    if code:
        raise InvalidValueError(
            f"the simulated driver refuses memory={memory!r}, host_memory={host_memory!r}, page={page!r}, "
            f"devices={devices!r} (CUresult {code})"
        )
    _open_runtime()
    _replace_runtime_calls()


def simulate_from_environment() -> bool:
    """Do what ``MEMX_SIMULATE`` asks for, as ``memory=1GiB,page=64KiB``; ``1`` takes the defaults.

    Returns
    -------
    bool
        Whether it asked for anything.
    """
    setting = os.environ.get("MEMX_SIMULATE", "").strip()
    if setting in ("", "0"):
        return False
    options = parse_setting(setting)
    if loaded() is None:
        simulate(**options)
    else:  # it came with the process, and reads the setting itself
        _replace_runtime_calls()
    return True


def parse_setting(setting: str) -> dict[str, Any]:
    kinds: dict[str, Callable[[str], Any]] = {
        "memory": str,
        "host_memory": str,
        "page": str,
        "devices": int,
        "seed": int,
        "host_mappable": _flag,
        "accounting_only": _flag,
        "driver_version": int,
        "strict_threads": _flag,
    }
    options: dict[str, Any] = {}
    if setting == "1":
        return options
    for item in setting.split(","):
        key, equals, value = item.partition("=")
        kind = kinds.get(key.strip())
        if kind is None or not equals:
            raise InvalidValueError(f"MEMX_SIMULATE: {item!r} is not one of {', '.join(kinds)} with a value")
        try:
            options[key.strip()] = kind(value.strip())
        except ValueError:
            raise InvalidValueError(f"MEMX_SIMULATE: {item!r} has a value of the wrong kind") from None
    return options


def _flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError(value)
    return value == "1"


def _open_runtime() -> None:
    """Open what stands on the driver, so that libraries loaded later find it by its name."""
    torch = sys.modules.get("torch")
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if cuda is not None and not _runtime_is_simulated():
        warnings.warn(
            "PyTorch was imported before memx.simulate() and keeps the CUDA runtime that it came with, which finds no "
            "device: call memx.simulate() before `import torch`, or start the program with `memx sim run`",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    for path in libraries()[1:]:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL if path.name == BEFORE_TORCH else ctypes.RTLD_LOCAL)


def _runtime_is_simulated() -> bool:
    try:
        return hasattr(ctypes.CDLL(RUNTIME[0], mode=os.RTLD_NOLOAD), "memxsim_runtime")
    except OSError:
        return False


def _replace_runtime_calls() -> None:
    """Let cuda.core's ``Device.sync`` and ``Device.pci_bus_id`` do without the CUDA runtime.

    Those two alone go through a runtime that is linked into cuda.bindings and needs a real driver's private
    tables.
    """
    from cuda.bindings import driver
    from cuda.core import Device

    def sync(self: Any) -> None:  # noqa: ARG001
        """Wait for everything queued in the current context."""
        (code,) = driver.cuCtxSynchronize()
        if code:
            raise RuntimeError(f"cuCtxSynchronize failed with {code.name}")

    def pci_bus_id(self: Any) -> str:
        """The PCI address of the device."""
        return f"0000:{self.device_id + 1:02X}:00.0"

    Device.sync = sync
    Device.pci_bus_id = property(pci_bus_id)
