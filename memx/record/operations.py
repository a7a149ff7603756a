"""Notes what every operation of PyTorch reads and writes, backward's too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from .child import Sender

__all__ = ["watch_operations"]

#: Operations that touch no memory.
_IDLE = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "record_stream",
    "resize_",
}


def watch_operations(torch: Any, sender: Sender) -> None:
    """Watch this thread and the threads of backward passes that it starts, for good."""
    _Watch(torch, sender).__enter__()


class _Watch(TorchDispatchMode):
    def __init__(self, torch: Any, sender: Sender) -> None:
        super().__init__()
        self._torch = torch
        self._sender = sender
        self._written: dict[Any, tuple[tuple[int, str, bool], ...]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        out = function(*arguments, **named)
        self._note(function, arguments, named, out)
        return out

    def _note(self, function: Any, arguments: Any, named: Any, out: Any) -> None:
        if function.is_view or function.namespace == "prim":
            return
        name = function._schema.name.partition("::")[2]
        if name in _IDLE:
            return
        reads = dict(self._storages((arguments, named)))
        writes: dict[int, int] = {}
        for position, keyword, is_out in self._targets(function):
            value = arguments[position] if position < len(arguments) else named.get(keyword)
            found = dict(self._storages((value,)))
            writes |= found
            if is_out:
                reads = {address: device for address, device in reads.items() if address not in found}
        writes |= {a: device for a, device in self._storages((out,)) if a not in reads}
        devices = {*reads.values(), *writes.values()}
        for device in devices:
            stream = self._torch.cuda.current_stream(device).cuda_stream
            what = [[a for a, d in operands.items() if d == device] for operands in (reads, writes)]
            self._sender.mark(["kernel", str(function), *what, stream], device)

    def _targets(self, function: Any) -> tuple[tuple[int, str, bool], ...]:
        """The arguments that are written to: position, keyword, and whether they are only written."""
        known = self._written.get(function)
        if known is None:
            known = tuple(
                (number, argument.name, argument.is_out)
                for number, argument in enumerate(function._schema.arguments)
                if argument.alias_info is not None and argument.alias_info.is_write
            )
            self._written[function] = known
        return known

    def _storages(self, values: Iterable[Any]) -> Iterator[tuple[int, int]]:
        """The memory of the CUDA tensors in nested lists and dictionaries: address and device."""
        for value in values:
            if isinstance(value, self._torch.Tensor):
                if value.is_cuda:
                    address = value.untyped_storage().data_ptr()
                    if address:
                        yield address, value.device.index
            elif isinstance(value, (list, tuple)):
                yield from self._storages(value)
            elif isinstance(value, dict):
                yield from self._storages(value.values())
