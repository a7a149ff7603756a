"""In a recorded process: memx below PyTorch, and a thread that sends its events to the process that records."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
from types import ModuleType
from typing import Any

from . import protocol

__all__ = ["Sender", "begin"]

_INTERVAL_S = 0.05
_MOST_AT_ONCE = 1 << 20  # bytes of a frame


def begin(torch: ModuleType) -> None:
    """Record this process from here on; PyTorch has just been imported."""
    from .. import _native
    from .. import torch as below

    below.enable()
    _native.torch_record_from_birth()
    sender = Sender(os.environ["MEMX_RECORD_SOCKET"])
    _watch_steps(sender)
    _watch_order(torch, sender)
    if os.environ.get("MEMX_RECORD_OPERATIONS") == "1":
        from .operations import watch_operations

        watch_operations(torch, sender)
    if os.environ.get("MEMX_RECORD_SNAPSHOT") == "1":
        from .frames import watch_frames

        watch_frames(torch, sender, for_good=os.environ.get("MEMX_RECORD_OPERATIONS") == "1")
        atexit.register(lambda: sender.finish(_segments()))
    else:
        atexit.register(sender.finish)


class Sender:
    """Sends the events of every resource below PyTorch, and what the marks among them stand for.

    Parameters
    ----------
    path : str
        The socket. The connection is made when there is something to send, so that processes that only import PyTorch
        are not recorded.
    """

    def __init__(self, path: str) -> None:
        from .. import _native

        self._native = _native
        self._path = path
        self._socket: socket.socket | None = None
        self._details: list[tuple[int, Any]] = []
        self._marks = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="memx-record", daemon=True)
        self._thread.start()
        os.register_at_fork(after_in_child=self._leave)

    def is_open(self) -> bool:
        """Whether marks are still noted."""
        return self._thread is not None

    def devices(self) -> list[int]:
        """The devices that are in use."""
        return list(self._native.torch_resources())

    def mark(self, what: Any, device: int | None = None) -> None:
        """Say what happens at this point between the events of a device; None: of all that are in use."""
        if self._thread is None:
            return
        resources = self._native.torch_resources()
        for number in resources if device is None else (device,):
            resource = resources.get(number)
            if resource is None:
                continue
            with self._lock:
                self._marks += 1
                mark = self._marks
                self._details.append((mark, what))
            resource.mark(mark)

    def flush(self) -> None:
        """Send what has happened so far."""
        # A mark's meaning is known before the mark is noted, so what is taken after the events has all of theirs.
        events = {device: resource.drain_packed() for device, resource in self._native.torch_resources().items()}
        with self._lock:
            details, self._details = self._details, []
        if not any(events.values()) and not details:
            return
        if self._socket is None:
            self._connect()
        if self._socket is None:
            return
        if details:
            protocol.send(self._socket, protocol.DETAILS, json.dumps(details).encode())
        for device, packed in events.items():
            for start in range(0, len(packed), _MOST_AT_ONCE // 48 * 48):
                part = packed[start : start + _MOST_AT_ONCE // 48 * 48]
                protocol.send(self._socket, protocol.EVENTS, part, device)

    def finish(self, segments: bytes = b"") -> None:
        """Send the rest; the process ends."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set()
        thread.join()
        try:
            self.flush()
            if segments and self._socket is not None:
                protocol.send(self._socket, protocol.SEGMENTS, segments)
        except OSError:
            self._give_up()
        if self._socket is not None:
            self._socket.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_INTERVAL_S):
                self.flush()
        except OSError:
            self._give_up()

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.connect(self._path)
        resources = self._native.torch_resources()
        page = next(iter(resources.values())).page_bytes()
        hello = {"pid": os.getpid(), "program": " ".join(sys.argv[:1]) or "python", "page": page}
        protocol.send(made, protocol.HELLO, json.dumps(hello).encode())
        self._socket = made

    def _give_up(self) -> None:
        """Nobody listens any more: the program goes on unrecorded."""
        self._thread = None
        for resource in self._native.torch_resources().values():
            resource.record_events(False)

    def _leave(self) -> None:
        """In a child after fork, which cannot use the device: the connection is its parent's."""
        self._thread = None
        if self._socket is not None:
            self._socket.close()


def _segments() -> bytes:
    from ..torch.snapshot import snapshot

    return json.dumps(snapshot()["segments"]).encode()


def _watch_steps(sender: Sender) -> None:
    count = 0

    def stepped(_optimizer: Any, _arguments: Any, _named: Any) -> None:
        nonlocal count
        count += 1
        sender.mark(["step", f"step {count}"])

    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(stepped)


def _watch_order(torch: Any, sender: Sender) -> None:
    """Note waits between streams, and the host's; an event stands for all that its stream has when it is waited for."""
    event, stream, cuda = torch.cuda.Event, torch.cuda.Stream, torch.cuda
    record, wait, finish, synchronize = event.record, event.wait, stream.synchronize, cuda.synchronize

    def noting_record(self: Any, stream: Any = None) -> None:
        record(self, stream) if stream is not None else record(self)
        recorded = stream if stream is not None else cuda.current_stream()
        self.memx_stream = (recorded.device_index, recorded.cuda_stream)

    def noting_wait(self: Any, stream: Any = None) -> None:
        waiting = stream if stream is not None else cuda.current_stream()
        wait(self, waiting)
        device, on = getattr(self, "memx_stream", (None, None))
        if on is not None and device == waiting.device_index and on != waiting.cuda_stream:
            sender.mark(["wait", waiting.cuda_stream, on], device)

    def noting_finish(self: Any) -> None:
        finish(self)
        sender.mark(["sync", self.cuda_stream], self.device_index)

    def noting_synchronize(device: Any = None) -> None:
        synchronize(device)
        sender.mark(["sync", None], torch.cuda._utils._get_device_index(device, optional=True))

    for owner, name, replacement in (
        (event, "record", noting_record),
        (event, "wait", noting_wait),
        (stream, "synchronize", noting_finish),
        (cuda, "synchronize", noting_synchronize),
    ):
        replacement.__doc__ = getattr(owner, name).__doc__
        setattr(owner, name, replacement)
