"""Notes what every operation of PyTorch reads and writes, backward's too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from .child import Sender

__all__ = ["Operands", "watch_operations"]

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


#: Operations that write the whole of their first argument without reading it.
_OVERWRITING = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}


def watch_operations(torch: Any, sender: Sender) -> None:
    """Watch this thread and the threads of backward passes that it starts, for good."""
    _Watch(torch, sender).__enter__()


class Operands:
    """What operations read and write: the addresses of storages on CUDA devices.

    Parameters
    ----------
    torch : module
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._written: dict[Any, tuple[tuple[int, str, bool], ...]] = {}

    def of(self, function: Any, arguments: Any, named: Any, out: Any) -> tuple[dict[int, int], dict[int, int]]:
        """Reads and writes of an operation that is done: device by address. Nothing of one that touches no memory."""
        if function.is_view or function.namespace == "prim":
            return {}, {}
        name = function._schema.name.partition("::")[2]
        if name in _IDLE:
            return {}, {}
        reads = dict(self._storages((arguments, named)))
        writes: dict[int, int] = {}
        for position, keyword, is_out in self._targets(function):
            value = arguments[position] if position < len(arguments) else named.get(keyword)
            found = dict(self._storages((value,)))
            writes |= found
            if is_out or (name in _OVERWRITING and _is_whole(value) and not self._among(arguments[1:], found)):
                reads = {address: device for address, device in reads.items() if address not in found}
        writes |= {a: device for a, device in self._storages((out,)) if a not in reads}
        return reads, writes

    def _among(self, values: Any, found: dict[int, int]) -> bool:
        return any(address in found for address, _ in self._storages(values))

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
                local = getattr(value, "_local_tensor", value)  # of a sharded one
                if local.is_cuda:
                    with suppress(RuntimeError, NotImplementedError):  # a subclass without a storage of its own
                        address = local.untyped_storage().data_ptr()
                        if address:
                            yield address, local.device.index
            elif isinstance(value, (list, tuple)):
                yield from self._storages(value)
            elif isinstance(value, dict):
                yield from self._storages(value.values())


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor is all of its storage."""
    try:
        return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        return False


class _Watch(TorchDispatchMode):
    def __init__(self, torch: Any, sender: Sender) -> None:
        super().__init__()
        self._torch = torch
        self._sender = sender
        self._operands = Operands(torch)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        out = function(*arguments, **named)
        reads, writes = self._operands.of(function, arguments, named, out)
        for device in {*reads.values(), *writes.values()}:
            stream = self._torch.cuda.current_stream(device).cuda_stream
            what = [[a for a, d in operands.items() if d == device] for operands in (reads, writes)]
            self._sender.mark(["kernel", str(function), *what, stream], device)
        return out
