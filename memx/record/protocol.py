"""What a recorded process sends: frames of a kind, a device and bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["DETAILS", "EVENTS", "HELLO", "SEGMENTS", "Row", "frames", "rows", "send"]

HELLO, DETAILS, EVENTS, SEGMENTS = b"H", b"D", b"E", b"S"
_FRAME = struct.Struct("<cxhI")
_ROW = struct.Struct("<6Q")
#: Operation (its number), address, bytes, stream, tag or other stream or mark, microseconds.
Row = tuple[int, int, int, int, int, int]


def send(to: socket.socket, kind: bytes, payload: bytes, device: int = 0) -> None:
    """One frame."""
    to.sendall(_FRAME.pack(kind, device, len(payload)) + payload)


def frames(received: bytearray) -> Iterator[tuple[bytes, int, bytes]]:
    """Take the whole frames off the front of what was received: kind, device, payload."""
    while len(received) >= _FRAME.size:
        kind, device, length = _FRAME.unpack_from(received)
        end = _FRAME.size + length
        if len(received) < end:
            return
        payload = bytes(received[_FRAME.size : end])
        del received[:end]
        yield kind, device, payload


def rows(payload: bytes) -> Iterator[Any]:
    """The :data:`Row` of each event."""
    return _ROW.iter_unpack(payload)
