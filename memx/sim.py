"""The simulated CUDA driver: put it in this process, steer it, ask what it saw.

Everything but :func:`simulate` needs the simulated driver to be there and raises
:class:`memx.InvalidStateError` otherwise.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, cast

from .errors import InvalidStateError, InvalidValueError
from .sizes import parse_size

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

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

_SONAME = "libcuda.so.1"
_FOLDER = Path(__file__).parent / "_sim"
_LIBRARY = _FOLDER / _SONAME
# What stands on the driver, each after what it needs; and what PyTorch must find before its own.
_RUNTIME = ("libcudart.so.13", "libnvidia-ml.so.1", "libcublasLt.so.13", "libcublas.so.13")
_BEFORE_TORCH = "libmemx-torch.so.1"
_RTLD_NOLOAD = os.RTLD_NOLOAD
_ALREADY_STARTED = 208  # CUDA_ERROR_ALREADY_MAPPED, from memxsim_configure once cuInit has run
_INVALID_VALUE, _NOT_SUPPORTED = 1, 801


class _Config(ctypes.Structure):
    _fields_ = (
        ("device_bytes", ctypes.c_uint64),
        ("host_bytes", ctypes.c_uint64),
        ("page_bytes", ctypes.c_uint64),
        ("devices", ctypes.c_uint32),
        ("accounting_only", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("host_mappable", ctypes.c_uint32),
        ("driver_version", ctypes.c_uint32),
    )


class HasStream(Protocol):
    """Anything that follows the ``__cuda_stream__`` protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Protocol version and stream handle."""


_library: ctypes.CDLL | None = None


def active() -> bool:
    """Whether the driver in this process is the simulated one."""
    return _loaded() is not None


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
    config = _Config(
        device_bytes=_positive(parse_size(memory, page_bytes), "memory"),
        host_bytes=_positive(parse_size(host_memory, page_bytes), "host_memory", least=0),
        page_bytes=_positive(page_bytes, "page"),
        devices=_positive(devices, "devices"),
        accounting_only=accounting_only,
        seed=seed & (2**64 - 1),
        host_mappable=host_mappable,
        driver_version=driver_version,
    )
    library = _loaded()
    if library is None:
        if _driver_present():
            raise InvalidStateError(
                "a CUDA driver is already in use in this process; call memx.simulate() before the first CUDA call"
            )
        library = _load()
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


def libraries() -> list[Path]:
    """The simulated driver and what stands on it, as shared libraries in the order to load them."""
    return [path for name in (_SONAME, *_RUNTIME, _BEFORE_TORCH) if (path := _FOLDER / name).exists()]


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
    options = _parse_setting(setting)
    if _loaded() is None:
        simulate(**options)
    else:  # it came with the process, and reads the setting itself
        _replace_runtime_calls()
    return True


def _parse_setting(setting: str) -> dict[str, Any]:
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


def _positive(value: int, name: str, least: int = 1) -> int:
    if not least <= value < 1 << 63:
        raise InvalidValueError(f"{name} must be at least {least}, not {value}")
    return value


def races() -> list[dict[str, Any]]:
    """Conflicting accesses without an order, and unmaps under running work, since the last clear."""
    return cast("list[dict[str, Any]]", _json("memxsim_races_json"))


def race_count() -> int:
    """How many there were; :func:`races` may keep fewer."""
    return int(_require().memxsim_race_count())


def clear_races() -> None:
    """Forget the races found so far."""
    _require().memxsim_clear_races()


def calls() -> dict[str, int]:
    """Calls by driver function, failed ones too."""
    return cast("dict[str, int]", _json("memxsim_calls_json"))


def usage() -> dict[str, Any]:
    """What exists now: device and host bytes, handles, mappings, reservations, streams, events, modules."""
    return cast("dict[str, Any]", _json("memxsim_usage_json"))


def costs() -> dict[str, float]:
    """The model's microseconds a call, by driver function."""
    return cast("dict[str, float]", _json("memxsim_costs_json"))


def set_cost(function: str, microseconds: float) -> None:
    """Replace a call's modelled cost, by one measured on a GPU for instance."""
    _check(_require().memxsim_set_cost(function.encode(), microseconds), f"no cost for {function!r}")


def modelled_us() -> float:
    """The costs of all calls so far: a model, not a measurement."""
    return float(_require().memxsim_modelled_us())


def reset_counts() -> None:
    """Start counting calls and modelled time anew."""
    _require().memxsim_reset_counts()


def hold(stream: HasStream | SupportsInt) -> None:
    """Stop a stream: work queued on it does not start until it is released.

    A host wait that depends on it, through other streams too, releases it.
    """
    _check(_require().memxsim_hold(ctypes.c_void_p(_handle(stream))), "no such stream")


def release(stream: HasStream | SupportsInt) -> None:
    """Let a held stream go on; nothing happens to one that is not held."""
    _check(_require().memxsim_release(ctypes.c_void_p(_handle(stream))), "no such stream")


class HasMemory(Protocol):
    """A :class:`cuda.core.Buffer`, a memx one, or what looks like one."""

    @property
    def handle(self) -> SupportsInt:
        """The address."""

    @property
    def size(self) -> int:
        """Its bytes."""


class _View:
    """What an array of simulated memory stands on; ends the view when the last array is gone."""

    def __init__(self, at: int, nbytes: int, memory: object) -> None:
        self._memory = memory
        self._at = at
        self._end = _require().memxsim_end_view
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (at, False)}

    def __del__(self) -> None:
        self._end(self._at)


def view(
    memory: HasMemory | tuple[int, int], dtype: DTypeLike = "uint8", shape: int | tuple[int, ...] | None = None
) -> NDArray[Any]:
    """Simulated memory itself as an array, device memory too: what kernels write is seen, what is written they see.

    For tests and for looking at things. Nothing is waited for, so synchronise first, and the race oracle knows
    nothing of accesses through the array.

    Parameters
    ----------
    memory : Buffer or (address, nbytes)
        A buffer of cuda.core or memx, or a range in which everything has memory now, by however many handles.
    dtype : numpy dtype
        Of the elements.
    shape : int or tuple of int, optional
        Of the array, which may be smaller than the memory; default: all of it, one-dimensional.

    Returns
    -------
    numpy.ndarray
        It keeps `memory` from being collected. It shows the pages that are there now: after they were moved (by memx:
        evicted, prefetched, paused) or freed, it keeps their last contents, which belong to nobody else, and follows
        nothing. It is always safe to touch.

    Raises
    ------
    InvalidStateError
        The driver in this process is not the simulated one.
    InvalidValueError
        A part of the range has no memory, its memory is the program's own (registered) or without contents
        (``accounting_only``), or the elements do not fit.
    """
    import numpy as np  # so that the command line, which imports this module, starts at once

    address, nbytes = memory if isinstance(memory, tuple) else (int(memory.handle), memory.size)
    kind = np.dtype(dtype)
    if kind.hasobject or kind.itemsize == 0:
        raise InvalidValueError(f"no view of memory as {kind}")
    if shape is None:
        if nbytes % kind.itemsize:
            raise InvalidValueError(f"{nbytes} bytes are no whole number of {kind} elements")
        shape = nbytes // kind.itemsize
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    wanted = kind.itemsize
    for extent in shape:
        wanted *= _positive(extent, "an extent of the shape", 0)
    if wanted > nbytes:
        raise InvalidValueError(
            f"an array of {shape} {kind} takes {wanted} bytes, more than the {nbytes} of the memory"
        )
    if wanted == 0:
        return np.empty(shape, kind)
    at = ctypes.c_void_p()
    code = _require().memxsim_view(address, wanted, ctypes.byref(at))
    where = f"{wanted} bytes at {address:#x}"
    if code == _INVALID_VALUE:
        raise InvalidValueError(f"{where}: a part of them has no memory")
    if code == _NOT_SUPPORTED:
        raise InvalidValueError(f"{where}: registered memory, or a device without contents (accounting_only)")
    _check(code, f"{where}: no mapping")
    everything: NDArray[Any] = np.asarray(_View(cast(int, at.value), wanted, memory))
    return everything.view(kind).reshape(shape)


def fail(
    name: str,
    *,
    at: int = 0,
    every: int = 0,
    probability: float = 0.0,
    code: int | str = "OUT_OF_MEMORY",
    start: int = 0,
) -> None:
    """Make calls of a driver function fail.

    Parameters
    ----------
    name : str
        The function's base name, ``"cuMemMap"``.
    at : int
        The at-th call from now on fails, once.
    every : int
        Each every-th call fails.
    probability : float
        Each call fails with it.
    code : int or str
        The ``CUresult``, or its name with or without ``CUDA_ERROR_``.
    start : int
        All calls from the start-th on fail, as under a driver that shuts down.

    All zero cancels what was set for the function.
    """
    number = code if isinstance(code, int) else _result_code(code)
    answer = _require().memxsim_fail(
        name.encode(),
        _positive(at, "at", 0),
        _positive(every, "every", 0),
        probability,
        _positive(start, "start", 0),
        number,
    )
    _check(answer, f"no driver function {name!r}, or a probability outside 0 to 1")


def _result_code(name: str) -> int:
    from cuda.bindings.driver import CUresult

    full = name if name.startswith("CUDA_") else f"CUDA_ERROR_{name}"
    code = getattr(CUresult, full, None)
    if code is None:
        raise InvalidValueError(f"no CUDA error is called {name!r}")
    return int(code)


def _handle(stream: HasStream | SupportsInt) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    return int(protocol()[1]) if protocol is not None else int(cast(SupportsInt, stream))


def _check(code: int, what: str) -> None:
    if code:
        raise InvalidValueError(f"{what} (CUresult {code})")


def _json(function: str) -> Any:
    ask = getattr(_require(), function)
    size = ask(None, 0)
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = ask(buffer, size)
        if needed <= size:
            return json.loads(buffer.value)
        size = needed


def _require() -> ctypes.CDLL:
    library = _loaded()
    if library is None:
        raise InvalidStateError("the simulated driver is not in this process; call memx.simulate() first")
    return library


def _driver_present() -> bool:
    try:
        ctypes.CDLL(_SONAME, mode=_RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _loaded() -> ctypes.CDLL | None:
    """The simulated driver, where this process has it: by memx.simulate, or by its environment."""
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL(_SONAME, mode=_RTLD_NOLOAD)
        except OSError:
            return None
        if not hasattr(library, "memxsim_configure"):
            return None
        _library = _declare(library)
    return _library


def _load() -> ctypes.CDLL:
    global _library
    if not _LIBRARY.exists():
        raise InvalidStateError("this installation of memx has no simulated driver (memx/_sim/libcuda.so.1)")
    _library = _declare(ctypes.CDLL(str(_LIBRARY), mode=ctypes.RTLD_GLOBAL))
    return _library


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
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL if path.name == _BEFORE_TORCH else ctypes.RTLD_LOCAL)


def _runtime_is_simulated() -> bool:
    try:
        return hasattr(ctypes.CDLL(_RUNTIME[0], mode=_RTLD_NOLOAD), "memxsim_runtime")
    except OSError:
        return False


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    u64, number, real = ctypes.c_uint64, ctypes.c_int, ctypes.c_double
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "memxsim_configure": (number, [ctypes.POINTER(_Config)]),
        "memxsim_hold": (number, [pointer]),
        "memxsim_release": (number, [pointer]),
        "memxsim_set_thread_clocks": (number, [number]),
        "memxsim_view": (number, [u64, u64, ctypes.POINTER(pointer)]),
        "memxsim_end_view": (number, [pointer]),
        "memxsim_fail": (number, [text, u64, u64, real, u64, number]),
        "memxsim_calls_json": (ctypes.c_size_t, [pointer, ctypes.c_size_t]),
        "memxsim_races_json": (ctypes.c_size_t, [pointer, ctypes.c_size_t]),
        "memxsim_usage_json": (ctypes.c_size_t, [pointer, ctypes.c_size_t]),
        "memxsim_costs_json": (ctypes.c_size_t, [pointer, ctypes.c_size_t]),
        "memxsim_set_cost": (number, [text, real]),
        "memxsim_modelled_us": (real, []),
        "memxsim_reset_counts": (None, []),
        "memxsim_clear_races": (None, []),
        "memxsim_race_count": (u64, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


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
