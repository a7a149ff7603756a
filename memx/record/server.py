"""In the recording process: takes what recorded processes send, and writes a trace for each device of each of them."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidStateError
from ..trace import Header
from . import protocol
from .output import TraceFile, numbered
from .snapshot import Snapshot
from .translate import Translator

__all__ = ["Recording", "Server"]

_FLUSH_S = 1.0
_QUIET_S, _LINGER_S = 0.2, 10.0
_RECEIVE_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class Recording:
    """What one trace holds.

    Attributes
    ----------
    path : str
    process, device : int
    events, buffers, steps, peak_live_bytes : int
    error : str
        Why it is not complete; empty if it is.
    """

    path: str
    process: int
    device: int
    events: int
    buffers: int
    steps: int
    peak_live_bytes: int
    error: str


class _Output:
    def __init__(self, path: Path, header: Header, process: int, device: int) -> None:
        self.file = TraceFile(path, header)
        self.translator = Translator()
        self.process = process
        self.device = device
        self.events = 0

    def take(self, row: protocol.Row, details: dict[int, Any]) -> None:
        for event in self.translator.take(row, details):
            self.file.write(event)
            self.events += 1

    def recording(self) -> Recording:
        t = self.translator
        return Recording(
            str(self.file.path),
            self.process,
            self.device,
            self.events,
            t.buffers,
            t.steps,
            t.peak_live,
            self.file.error,
        )


@dataclass(slots=True)
class _Process:
    hello: dict[str, Any] = field(default_factory=dict)
    received: bytearray = field(default_factory=bytearray)
    details: dict[int, Any] = field(default_factory=dict)
    outputs: dict[int, _Output] = field(default_factory=dict)


class Server:
    """Listens while a ``with`` block runs; every trace is complete after it.

    Parameters
    ----------
    path : Path
        Of the first device of the first process that uses one; further ones get a number before the suffix.
    snapshot : Path, optional
        Where to write the first process's memory in PyTorch's form.

    Attributes
    ----------
    address : str
        Of the socket.
    recordings : list of Recording
        After the block.
    """

    def __init__(self, path: Path, snapshot: Path | None = None) -> None:
        self.recordings: list[Recording] = []
        self._path = path
        self._snapshot = Snapshot(snapshot) if snapshot else None
        self._folder = tempfile.mkdtemp(prefix="memx-")
        self.address = os.path.join(self._folder, "record")
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._outputs: list[_Output] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="memx-record")

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for output in self._outputs:
            output.file.close()
        self.recordings = [output.recording() for output in self._outputs]
        if self._snapshot:
            self._snapshot.write()

    def _serve(self) -> None:
        """Until the block has ended and all is read; for a while only where processes outlive the program."""
        end = 0.0
        while True:
            ready = self._selector.select(_QUIET_S if end else _FLUSH_S)
            if self._ending.is_set() and not end:
                end = time.monotonic() + _LINGER_S
                continue
            if end and (not ready or time.monotonic() > end):
                return
            for key, _ in ready:
                if key.fileobj is self._listener:
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, _Process())
                else:
                    self._receive(key.fileobj, key.data)
            for output in self._outputs:
                if not ready or output.file.is_due(_FLUSH_S):
                    output.file.flush()

    def _receive(self, connection: Any, process: _Process) -> None:
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            connection.close()
            return
        process.received += data
        for kind, device, payload in protocol.frames(process.received):
            if kind == protocol.HELLO:
                process.hello = json.loads(payload)
            elif kind == protocol.DETAILS:
                process.details.update(dict(json.loads(payload)))
            elif kind == protocol.EVENTS:
                self._events(process, device, payload)
            elif kind == protocol.SEGMENTS and self._snapshot and self._is_first(process):
                self._snapshot.segments = json.loads(payload)

    def _events(self, process: _Process, device: int, payload: bytes) -> None:
        output = process.outputs.get(device)
        if output is None:
            output = self._open(process, device)
            process.outputs[device] = output
        keep = self._snapshot if self._is_first(process) else None
        for row in protocol.rows(payload):
            if keep:
                keep.take(row, device, process.details)
            output.take(row, process.details)

    def _open(self, process: _Process, device: int) -> _Output:
        path = numbered(self._path, len(self._outputs) + 1)
        name = f"{Path(process.hello['program']).name}, process {process.hello['pid']}, cuda:{device}"
        output = _Output(path, Header(name=name, page=process.hello["page"]), process.hello["pid"], device)
        self._outputs.append(output)
        return output

    def _is_first(self, process: _Process) -> bool:
        return bool(self._outputs) and self._outputs[0].process == process.hello["pid"]


def check_target(path: Path) -> None:
    """Find out before the program runs whether its trace can be written.

    Raises
    ------
    InvalidStateError
    """
    if not path.absolute().parent.is_dir():
        raise InvalidStateError(f"{path}: there is no such folder")
    if path.is_dir():
        raise InvalidStateError(f"{path} is a folder")
