"""Operations in PyTorch's record of allocations: their names, or their numbers with what each reads and writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from ..record.operations import Operands
from .raw import Operation

__all__ = ["Naming", "Numbering"]

_ON_LISTS = ("_foreach_", "_fused_", "_amp_foreach_")


class Naming(TorchDispatchMode):
    """Marks what a thread allocates with the operation that does it, on the threads of backward passes too."""

    def __init__(self, torch: Any) -> None:
        super().__init__()
        self._set = torch._C._cuda_setMemoryMetadata

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self._set(function._schema.name.partition("::")[2])
        try:
            return function(*arguments, **(named or {}))
        finally:
            self._set("")


class Numbering(TorchDispatchMode):
    """Numbers operations from 1 and keeps what they read and write on the first device.

    What is allocated and freed in an operation is marked with its number, what comes after it with the number's
    negative: so PyTorch's record says where among its entries each operation belongs.

    Attributes
    ----------
    done : list of Operation
        An operation on lists of tensors is there once for each of their elements.
    count : int
        The last number.
    """

    def __init__(self, torch: Any) -> None:
        super().__init__()
        self._torch = torch
        self._set = torch._C._cuda_setMemoryMetadata
        self._stream = torch._C._cuda_getCurrentRawStream
        self._operands = Operands(torch)
        self._process = os.getpid()
        self.done: list[Operation] = []
        self.count = 0

    def leave(self) -> None:
        """See no more operations."""
        self._process = -1
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def settle(self) -> None:
        """Mark what this thread allocates or frees from here on as later than all operations so far."""
        if self._process == os.getpid() and self._torch.cuda.is_initialized():
            self._set(str(-self.count))

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        if os.getpid() != self._process or not self._torch.cuda.is_initialized():
            return function(*arguments, **named)
        self.count = number = self.count + 1
        self._set(str(number))
        try:
            out = function(*arguments, **named)
        finally:
            self._set(str(-number))
        name = function._schema.name.partition("::")[2]
        for part in _parts(name, arguments, named, out):
            reads, writes = self._operands.of(function, *part)
            if reads or writes:
                operands = [[a for a, device in found.items() if device == 0] for found in (reads, writes)]
                stream = self._stream(0)
                self.done.append((number, name, *operands, stream, threading.get_ident()))
        return out


def _parts(name: str, arguments: Any, named: Any, out: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Arguments and result of an operation, or of each element of one on lists, whose kernels take some at a time."""
    lists = [value for value in arguments if isinstance(value, (list, tuple)) and value]
    if not lists or not name.startswith(_ON_LISTS):
        yield arguments, named, out
        return
    for i in range(max(map(len, lists))):
        yield _element(arguments, i), dict(zip(named, _element(named.values(), i), strict=True)), _element([out], i)


def _element(values: Any, i: int) -> list[Any]:
    found = []
    for value in values:
        with suppress(IndexError):
            found.append([value[i]] if isinstance(value, (list, tuple)) else value)
            continue
        found.append([])
    return found
