"""The host threads of a trace: one runs at a time, each with its own per-thread default stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from ..trace.events import Id

__all__ = ["HostThreads"]

T = TypeVar("T")


class _Worker:
    def __init__(self, name: Id, prepare: Callable[[], None]) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"memx-replay-{name}", daemon=True)
        self._thread.start()
        self.call(prepare)

    def call(self, function: Callable[[], T]) -> T:
        answers: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

        def job() -> None:
            try:
                answers.put((function(), None))
            except BaseException as error:
                answers.put((None, error))

        self._jobs.put(job)
        value, error = answers.get()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class HostThreads:
    """Thread 0 is the caller's; others are made when first named.

    Parameters
    ----------
    prepare : callable
        Run first in every new thread.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._workers: dict[Id, _Worker] = {}

    def call(self, thread: Id, function: Callable[[], T]) -> T:
        """Run a function in a thread, and wait for it. Only the caller's own thread may call this."""
        if thread == 0:
            return function()
        worker = self._workers.get(thread)
        if worker is None:
            worker = self._workers[thread] = _Worker(thread, self._prepare)
        return worker.call(function)

    def stop(self) -> None:
        """End the threads."""
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()
