"""The simulated driver's shared library: where it is, whether this process has it, and its functions."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from ..errors import InvalidStateError, InvalidValueError

SONAME = "libcuda.so.1"
FOLDER = Path(__file__).parents[1] / "_sim"
# What stands on the driver, each after what it needs; and what PyTorch must find before its own.
RUNTIME = ("libcudart.so.13", "libnvidia-ml.so.1", "libcublasLt.so.13", "libcublas.so.13")
BEFORE_TORCH = "libmemx-torch.so.1"


class Config(ctypes.Structure):
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


_library: ctypes.CDLL | None = None


def active() -> bool:
    """Whether the driver in this process is the simulated one."""
    return loaded() is not None


def libraries() -> list[Path]:
    """The simulated driver and what stands on it, as shared libraries in the order to load them."""
    return [path for name in (SONAME, *RUNTIME, BEFORE_TORCH) if (path := FOLDER / name).exists()]


def check(code: int, what: str) -> None:
    if code:
        raise InvalidValueError(f"{what} (CUresult {code})")


def ask_json(function: str) -> Any:
    ask = getattr(require(), function)
    size = ask(None, 0)
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = ask(buffer, size)
        if needed <= size:
            return json.loads(buffer.value)
        size = needed


def require() -> ctypes.CDLL:
    library = loaded()
    if library is None:
        raise InvalidStateError("the simulated driver is not in this process; call memx.simulate() first")
    return library


def driver_present() -> bool:
    try:
        ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def loaded() -> ctypes.CDLL | None:
    """The simulated driver, where this process has it: by memx.simulate, or by its environment."""
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)
        except OSError:
            return None
        if not hasattr(library, "memxsim_configure"):
            return None
        _library = _declare(library)
    return _library


def load() -> ctypes.CDLL:
    global _library
    path = FOLDER / SONAME
    if not path.exists():
        raise InvalidStateError("this installation of memx has no simulated driver (memx/_sim/libcuda.so.1)")
    _library = _declare(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
    return _library


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    u64, number, real = ctypes.c_uint64, ctypes.c_int, ctypes.c_double
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "memxsim_configure": (number, [ctypes.POINTER(Config)]),
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


def positive(value: int, name: str, least: int = 1) -> int:
    if not least <= value < 1 << 63:
        raise InvalidValueError(f"{name} must be at least {least}, not {value}")
    return value
