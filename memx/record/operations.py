"""Notes what every operation of PyTorch reads and writes, backward's too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from .storages import cuda_storage

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


@dataclass(slots=True, frozen=True)
class _Kind:
    """What is to be known of an operation to say what it reads and writes."""

    idle: bool
    overwrites: bool
    targets: tuple[tuple[int, str, bool], ...]  # arguments written to: position, keyword, whether they are only written

    @classmethod
    def of(cls, function: Any) -> _Kind:
        name = function._schema.name.partition("::")[2]
        targets = tuple(
            (number, argument.name, argument.is_out)
            for number, argument in enumerate(function._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        idle = function.is_view or function.namespace == "prim" or name in _IDLE
        return cls(idle, name in _OVERWRITING, targets)


class Operands:
    """What operations read and write: the addresses of storages on CUDA devices.

    Parameters
    ----------
    torch : module
    """

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._kinds: dict[Any, _Kind] = {}

    def of(self, function: Any, arguments: Any, named: Any, out: Any) -> tuple[dict[int, int], dict[int, int]]:
        """Reads and writes of an operation that is done: device by address. Nothing of one that touches no memory."""
        kind = self._kinds.get(function)
        if kind is None:
            kind = self._kinds[function] = _Kind.of(function)
        reads: dict[int, int] = {}
        writes: dict[int, int] = {}
        if kind.idle:
            return reads, writes
        self._add(arguments, reads)
        if named:
            self._add(named, reads)
        for position, keyword, is_out in kind.targets:
            value = arguments[position] if position < len(arguments) else named.get(keyword)
            found: dict[int, int] = {}
            self._add(value, found)
            writes |= found
            if is_out or (kind.overwrites and self._is_whole(value) and not self._among(arguments[1:], found)):
                for address in found:
                    reads.pop(address, None)
        made: dict[int, int] = {}
        self._add(out, made)
        for address, device in made.items():
            if address not in reads:
                writes[address] = device
        return reads, writes

    def _add(self, value: Any, into: dict[int, int]) -> None:
        """Add the memory of the CUDA tensors in a value or in nested lists and dictionaries."""
        if isinstance(value, self._tensor):
            found = cuda_storage(value)
            if found is not None and found[0]:
                into[found[0]] = found[1]
        elif isinstance(value, (list, tuple)):
            for one in value:
                self._add(one, into)
        elif isinstance(value, dict):
            for one in value.values():
                self._add(one, into)

    def _among(self, values: Any, addresses: dict[int, int]) -> bool:
        found: dict[int, int] = {}
        self._add(values, found)
        return not addresses.keys().isdisjoint(found)

    def _is_whole(self, tensor: Any) -> bool:
        """Whether a tensor is all of its storage."""
        try:
            return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())
        except (RuntimeError, NotImplementedError):
            return False


class _Watch(TorchDispatchMode):
    def __init__(self, torch: Any, sender: Sender) -> None:
        super().__init__()
        self._stream = torch._C._cuda_getCurrentRawStream
        self._sender = sender
        self._operands = Operands(torch)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        out = function(*arguments, **named)
        reads, writes = self._operands.of(function, arguments, named, out)
        for device in {*reads.values(), *writes.values()}:
            stream = self._stream(device)
            what = [[a for a, d in operands.items() if d == device] for operands in (reads, writes)]
            self._sender.mark(["kernel", str(function), *what, stream], device)
        return out
