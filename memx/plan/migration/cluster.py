"""Planning on a Dask cluster: islands of one problem, or many problems at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from ...errors import InvalidStateError, InvalidValueError
from .islands import Pool, Threads
from .problem import Migration
from .result import SegmentPlan
from .solve import segments

__all__ = ["Dask", "plan_many", "pool_of"]

_CONNECT_SECONDS = 10


class Dask:
    """A pool of tasks on an existing cluster; a context manager.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    InvalidStateError
        ``distributed`` is not installed, or there is no scheduler.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InvalidStateError("--scheduler dask needs Dask: pip install 'memx[dask]'") from None
        try:
            self.client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InvalidStateError(f"no Dask scheduler answers at {address}: {error}") from None
        self._sent: tuple[Migration, Any] | None = None

    def width(self) -> int:
        """Threads of all workers."""
        return max(1, sum(int(count) for count in self.client.nthreads().values()))

    def map(self, function: Callable[..., Any], problem: Migration, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See :class:`memx.plan.migration.islands.Pool`; the problem is sent once."""
        if self._sent is None or self._sent[0] is not problem:
            self._sent = problem, self.client.scatter(problem, broadcast=True, hash=False)
        shared = self._sent[1]
        futures = [self.client.submit(function, shared, *call, pure=False) for call in calls]
        found: list[Any] = self.client.gather(futures)
        return found

    def __enter__(self) -> Dask:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()


def pool_of(scheduler: str | None) -> AbstractContextManager[Pool]:
    """What a scheduler's name stands for: threads here, or ``dask:ADDRESS``.

    Raises
    ------
    InvalidValueError
        It is neither.
    """
    if scheduler is None:
        return nullcontext(Threads())
    kind, _, address = scheduler.partition(":")
    if kind != "dask" or not address:
        raise InvalidValueError(f"not a scheduler: {scheduler!r} (write dask:ADDRESS)")
    return Dask(address)


def plan_many(
    problems: Sequence[Migration], capacity: int, time_limit: float, seed: int, options: dict[str, Any], pool: Pool
) -> list[SegmentPlan]:
    """A plan of each problem, in order; on a cluster one task each, else one after the other.

    ``options`` are further ones of :func:`memx.plan.segments`.
    """
    arguments = (capacity, time_limit, seed)
    if not isinstance(pool, Dask):
        return [segments(problem, *arguments, pool=pool, **options) for problem in problems]
    futures = [pool.client.submit(segments, problem, *arguments, pure=False, **options) for problem in problems]
    plans: list[SegmentPlan] = pool.client.gather(futures)
    return plans
