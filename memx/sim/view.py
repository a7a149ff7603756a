"""Simulated memory as NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, cast

from ..errors import InvalidValueError
from .library import check, positive, require

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_INVALID_VALUE, _NOT_SUPPORTED = 1, 801


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
        self._end = require().memxsim_end_view
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
        wanted *= positive(extent, "an extent of the shape", 0)
    if wanted > nbytes:
        raise InvalidValueError(
            f"an array of {shape} {kind} takes {wanted} bytes, more than the {nbytes} of the memory"
        )
    if wanted == 0:
        return np.empty(shape, kind)
    at = ctypes.c_void_p()
    code = require().memxsim_view(address, wanted, ctypes.byref(at))
    where = f"{wanted} bytes at {address:#x}"
    if code == _INVALID_VALUE:
        raise InvalidValueError(f"{where}: a part of them has no memory")
    if code == _NOT_SUPPORTED:
        raise InvalidValueError(f"{where}: registered memory, or a device without contents (accounting_only)")
    check(code, f"{where}: no mapping")
    everything: NDArray[Any] = np.asarray(_View(cast(int, at.value), wanted, memory))
    return everything.view(kind).reshape(shape)
