"""Stream captures of a replay: their graphs, and contents that come to be only when a graph runs."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidStateError
from .buffers import Buffer
from .contents import Span
from .driver import Driver

__all__ = ["Captures"]


class Captures:
    """Captures by the number of the stream that they began on.

    At its end a capture's graph is launched once, so that the work in it has happened like any other. After
    an abort the buffers hold what they held before.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._open: dict[int, int] = {}
        self._graphs: dict[int, tuple[Any, Any]] = {}
        self._before: list[tuple[Buffer, tuple[Span, ...]]] = []

    def covers(self, stream: int) -> bool:
        """Whether work queued on a stream (a handle) now goes into a graph."""
        return bool(self._open) and self._driver.is_capturing(stream)

    def note_write(self, buffer: Buffer) -> None:
        """A captured kernel is about to write: remember what an abort brings back."""
        self._before.append((buffer, buffer.contents.spans))

    def begin(self, number: int, stream: int) -> None:
        """``capture_begin``."""
        if number in self._open:
            raise InvalidStateError(f"stream {number} is being captured already")
        self._driver.begin_capture(stream)
        self._open[number] = stream

    def end(self, number: int) -> None:
        """``capture_end``."""
        stream = self._close(number)
        graph = self._driver.end_capture(stream)
        self.release(number)
        self._graphs[number] = graph, self._driver.launch_graph(graph, stream)
        if not self._open:
            self._before.clear()

    def abort(self, number: int) -> None:
        """``capture_abort``."""
        graph = self._driver.end_capture(self._close(number))
        for buffer, spans in reversed(self._before):
            buffer.contents.spans = spans
        self._before.clear()
        self._driver.destroy_graph(graph)

    def release(self, number: int) -> None:
        """``graph_release``; nothing happens where there is no graph."""
        graph = self._graphs.pop(number, None)
        if graph is not None:
            self._driver.destroy_graph(*graph)

    def close(self) -> None:
        """Abort what is open and destroy what is left."""
        for number in list(self._open):
            self.abort(number)
        for number in list(self._graphs):
            self.release(number)

    def _close(self, number: int) -> int:
        if number not in self._open:
            raise InvalidStateError(f"stream {number} is not being captured")
        return self._open.pop(number)
