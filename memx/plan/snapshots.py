"""PyTorch memory snapshots (``torch.cuda.memory._dump_snapshot``) as layout problems."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike, fspath
from typing import Any, NoReturn

from ..errors import PlanError, TraceError
from ..trace import events as ev
from ..trace.files import open_reader
from .buffers import Buffers
from .lifetimes import TRACE_ALIGNMENT, buffers_of

__all__ = ["read_snapshot", "snapshot_events"]


def read_snapshot(path: str | PathLike[str], device: int | None = None, alignment: int = TRACE_ALIGNMENT) -> Buffers:
    """Read what one device's history says was allocated when.

    A buffer lives from its ``alloc`` to its ``free_completed``, and on until the last allocation on another
    stream: a snapshot does not say what orders streams. The history is a ring that loses its oldest entries:
    what it frees without having allocated, and what the segments hold that it never names, lived from the
    start. Time counts the history's entries; sizes are as requested.

    Parameters
    ----------
    path : path
        A pickle of plain containers, numbers and strings. It is never executed: one that names any class or
        function is refused.
    device : int, optional
        Needed where several devices have a history.
    alignment : int
        Bytes.

    Raises
    ------
    PlanError
        With the file, the entry and what is wrong or missing.
    """
    name = fspath(path)
    with _without_collector():
        return buffers_of(
            snapshot_events(path, device),
            alignment,
            lambda entry: f"{name}: history entry {entry}" if entry >= 0 else f"{name}: before the history",
        )


def snapshot_events(path: str | PathLike[str], device: int | None = None) -> Iterator[ev.Event]:
    """What one device's history says, an event for each of its entries; see :func:`read_snapshot`.

    What was there from the start comes first. ``line`` is the entry, -1 before the first; entries that neither
    allocate nor complete a free are steps.
    """
    name = fspath(path)
    snapshot = _load(name)
    histories = _member(name, snapshot, "device_traces", list, "the snapshot")
    segments = _member(name, snapshot, "segments", list, "the snapshot")
    recorded = [i for i, history in enumerate(histories) if history]
    if not recorded:
        raise PlanError(f"{name}: no history: call torch.cuda.memory._record_memory_history() before the work")
    if device is None:
        if len(recorded) > 1:
            raise PlanError(f"{name}: devices {', '.join(map(str, recorded))} have a history: say which to plan")
        device = recorded[0]
    if device not in recorded:
        raise PlanError(f"{name}: device {device} has no history")
    history = histories[device]
    if not isinstance(history, list):
        raise PlanError(f"{name}: the history of device {device} is not a list")
    streams = {0: 0}
    first = _before(name, history, segments, device, streams)
    return chain(first, _events(name, history, streams, {event.id for event in first}))


class _Plain(pickle.Unpickler):
    name: str

    def find_class(self, module: str, name: str) -> NoReturn:
        raise PlanError(f"{self.name}: refused: the pickle wants to load {module}.{name}; snapshots never do")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise PlanError(f"{self.name}: refused: the pickle refers to {pid!r} outside of it")


@contextmanager
def _without_collector() -> Iterator[None]:
    """A million containers, none in a cycle: looking for cycles among them takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(name: str) -> Any:
    try:
        with open_reader(name) as file, _without_collector():
            unpickler = _Plain(file)
            unpickler.name = name
            return unpickler.load()
    except PlanError:
        raise
    except TraceError as error:
        raise PlanError(str(error)) from None
    except MemoryError:
        raise PlanError(f"{name}: the pickle asks for more memory than there is") from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise PlanError(f"{name}: the pickle is damaged: {type(error).__name__}: {error}") from None


def _member(name: str, container: Any, key: str, kind: type, what: str) -> Any:
    if type(container) is dict and type(value := container.get(key)) is kind:
        return value
    if not isinstance(container, dict):
        raise PlanError(f"{name}: {what} is not a dict")
    if key not in container:
        raise PlanError(f"{name}: {what} has no {key!r}")
    value = container[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanError(f"{name}: {key!r} of {what} is {value!r}, not of type {kind.__name__}")
    return value


def _before(name: str, history: list[Any], segments: list[Any], device: int, streams: dict[int, int]) -> list[ev.Alloc]:
    """What was allocated before the oldest entry, in no order."""
    named: set[int] = set()
    events: list[ev.Alloc] = []

    def add(address: int, size: int, stream: int) -> None:
        events.append(ev.Alloc(_id(address), size, streams.setdefault(stream, len(streams)), line=-1))
        named.add(address)

    for i, entry in enumerate(history):
        action = entry.get("action") if isinstance(entry, dict) else None
        if action not in ("alloc", "free_requested", "free_completed"):
            continue
        address = _member(name, entry, "addr", int, f"history entry {i}")
        if action != "alloc" and address not in named:
            what = f"history entry {i}"
            add(address, _member(name, entry, "size", int, what), _member(name, entry, "stream", int, what))
        named.add(address)
    for i, segment in enumerate(segments):
        what = f"segment {i}"
        if _member(name, segment, "device", int, what) != device:
            continue
        stream = _member(name, segment, "stream", int, what)
        address = _member(name, segment, "address", int, what)
        for j, block in enumerate(_member(name, segment, "blocks", list, what)):
            which = f"block {j} of {what}"
            size = _member(name, block, "size", int, which)
            # Older snapshots give no addresses of blocks: they lie one after the other.
            start = block.get("address", address)
            if _member(name, block, "state", str, which) != "inactive" and start not in named:
                add(start, block.get("requested_size", size), stream)
            address = start + size
    return events


def _events(name: str, history: list[Any], streams: dict[int, int], held: set[ev.Id]) -> Iterator[ev.Event]:
    live: dict[ev.Id, int | None] = dict.fromkeys(held)
    for i, entry in enumerate(history):
        what = f"history entry {i}"
        action = _member(name, entry, "action", str, what)
        event: ev.Event = ev.Step(line=i)
        if action == "alloc":
            address = _id(_member(name, entry, "addr", int, what))
            if address in live:
                since = f"by entry {live[address]}" if live[address] is not None else "from the start"
                raise PlanError(f"{name}: {what} allocates {address}, allocated {since} already")
            live[address] = i
            size, stream = (_member(name, entry, key, int, what) for key in ("size", "stream"))
            event = ev.Alloc(address, size, streams.setdefault(stream, len(streams)), line=i)
        elif action == "free_completed":
            address = _id(_member(name, entry, "addr", int, what))
            if address in live:
                del live[address]
                event = ev.Free(address, line=i)
        yield event


def _id(address: int) -> str:
    return f"{address:#x}"
