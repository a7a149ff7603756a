"""Layout problems: buffers with sizes and half-open lifetimes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ..errors import PlanError

__all__ = ["Buffer", "Buffers", "Column"]

Column = npt.NDArray[np.int64]

# Offsets, tops and the sum of all sizes stay below it, so that no int64 arithmetic wraps.
_LIMIT = 1 << 62


@dataclass(frozen=True)
class Buffer:
    """One buffer to lay out.

    Attributes
    ----------
    id : str or int
        What messages and files call it. Traces use ids again after a free.
    lower, upper : int
        It is alive in ``[lower, upper)``; never, if they are equal.
    size : int
        Bytes.
    alignment : int
        Its offset is a multiple of this.
    offset : int, optional
        Where it must lie; None: anywhere.
    tag : str, optional
        For pictures.
    """

    id: str | int
    lower: int
    upper: int
    size: int
    alignment: int = 1
    offset: int | None = None
    tag: str | None = None


class Buffers(Sequence[Buffer]):
    """A checked layout problem, held in columns.

    Parameters
    ----------
    ids : sequence of str or int
    lower, upper, size : sequences of int
        As in :class:`Buffer`.
    alignment : sequence of int, optional
        1 where not given.
    fixed : sequence of int, optional
        Where each must lie, -1 where it is free.
    tags : sequence of str or None, optional
        For pictures.
    place : callable, optional
        Says where a row comes from (``"a.csv:7"``), for messages.

    Raises
    ------
    PlanError
        A lifetime that ends before it begins, a negative size, an alignment below 1, a fixed offset that is
        not aligned, or numbers that 64-bit offsets cannot follow; it names the buffer and its place.
    """

    ids: Sequence[str | int]
    lower: Column
    upper: Column
    size: Column
    alignment: Column
    fixed: Column
    tags: Sequence[str | None] | None

    def __init__(
        self,
        ids: Sequence[str | int],
        lower: Sequence[int] | Column,
        upper: Sequence[int] | Column,
        size: Sequence[int] | Column,
        *,
        alignment: Sequence[int] | Column | None = None,
        fixed: Sequence[int] | Column | None = None,
        tags: Sequence[str | None] | None = None,
        place: Callable[[int], str] | None = None,
    ) -> None:
        self.ids = ids
        self.tags = tags
        self._place = place
        self.lower = self._column("lower", lower)
        self.upper = self._column("upper", upper)
        self.size = self._column("size", size)
        self.alignment = self._column("alignment", [1] * len(ids) if alignment is None else alignment)
        self.fixed = self._column("offset", [-1] * len(ids) if fixed is None else fixed)
        self._check()

    @classmethod
    def of(cls, rows: Iterable[Buffer | tuple[int, int, int]]) -> Buffers:
        """The problem of rows; a plain ``(lower, upper, size)`` gets its position as id."""
        if isinstance(rows, cls):
            return rows
        listed = [row if isinstance(row, Buffer) else _from_tuple(i, row) for i, row in enumerate(rows)]
        for buffer in listed:
            if buffer.offset is not None and buffer.offset < 0:
                raise PlanError(f"buffer {buffer.id!r}: its fixed offset {buffer.offset} is negative")
        return cls(
            [b.id for b in listed],
            [b.lower for b in listed],
            [b.upper for b in listed],
            [b.size for b in listed],
            alignment=[b.alignment for b in listed],
            fixed=[-1 if b.offset is None else b.offset for b in listed],
            tags=[b.tag for b in listed],
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Buffer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Buffer]: ...
    def __getitem__(self, index: int | slice) -> Buffer | list[Buffer]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        fixed = int(self.fixed[index])
        return Buffer(
            self.ids[index],
            int(self.lower[index]),
            int(self.upper[index]),
            int(self.size[index]),
            int(self.alignment[index]),
            None if fixed < 0 else fixed,
            None if self.tags is None else self.tags[index],
        )

    def name(self, index: int) -> str:
        """How messages call a buffer."""
        where = f"{self._place(index)}: " if self._place else ""
        return f"{where}buffer {self.ids[index]!r}"

    def aligned(self, alignment: int) -> Buffers:
        """The same problem with every alignment at least this."""
        return Buffers(
            self.ids,
            self.lower,
            self.upper,
            self.size,
            alignment=np.maximum(self.alignment, alignment),
            fixed=self.fixed,
            tags=self.tags,
            place=self._place,
        )

    @property
    def occupying(self) -> npt.NDArray[np.bool_]:
        """Which buffers take up space at some time."""
        return (self.lower < self.upper) & (self.size > 0)

    def load(self) -> tuple[Column, Column]:
        """Bytes alive over time.

        Returns
        -------
        times, nbytes : int64 arrays
            ``nbytes[i]`` are alive from ``times[i]`` until ``times[i + 1]``.
        """
        use = self.occupying
        when = np.concatenate([self.lower[use], self.upper[use]])
        change = np.concatenate([self.size[use], -self.size[use]])
        times, slot = np.unique(when, return_inverse=True)
        deltas = np.zeros(len(times), np.int64)
        np.add.at(deltas, slot, change)
        return times, np.cumsum(deltas)

    def max_load(self) -> int:
        """The most bytes alive at once: no layout is lower."""
        return int(self.load()[1].max(initial=0))

    def _column(self, field: str, values: Sequence[int] | Column) -> Column:
        if len(values) != len(self.ids):
            raise PlanError(f"{len(self.ids)} ids but {len(values)} values of {field}")
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64:
            return np.ascontiguousarray(values, np.int64)
        for i, value in enumerate(values):
            try:
                number = operator.index(value)
            except TypeError:
                raise PlanError(f"{self.name(i)}: {field} {value!r} is not a whole number") from None
            if not -_LIMIT < number < _LIMIT:
                raise PlanError(f"{self.name(i)}: {field} {number} is out of range, its limit is 2^62")
        return np.array(values, np.int64)

    def _check(self) -> None:
        def refuse(bad: npt.NDArray[np.bool_], problem: Callable[[Buffer], str]) -> None:
            if bad.any():
                i = int(np.flatnonzero(bad)[0])
                raise PlanError(f"{self.name(i)}: {problem(self[i])}")

        refuse(self.upper < self.lower, lambda b: f"it ends at {b.upper}, before it begins at {b.lower}")
        refuse(self.size < 0, lambda b: f"size {b.size} is negative")
        refuse(self.alignment < 1, lambda b: f"alignment {b.alignment} is below 1")
        refuse(
            (self.fixed >= 0) & (self.fixed % np.maximum(self.alignment, 1) != 0),
            lambda b: f"its fixed offset {b.offset} is not a multiple of its alignment {b.alignment}",
        )
        reach = np.maximum(self.fixed, 0).astype(float) + self.size + self.alignment
        refuse(reach >= _LIMIT, lambda b: f"with its size of {b.size} bytes it ends beyond 64-bit offsets")
        # Greedy layouts may at worst stack everything.
        refuse(
            np.cumsum(self.size.astype(float) + self.alignment) + self.fixed.max(initial=0) >= _LIMIT,
            lambda b: f"with its size of {b.size} bytes all sizes add up to more than 64-bit offsets can hold",
        )


def _from_tuple(position: int, row: Any) -> Buffer:
    try:
        lower, upper, size = row
    except (TypeError, ValueError):
        raise PlanError(f"buffer {position}: neither a Buffer nor a (lower, upper, size): {row!r}") from None
    return Buffer(position, lower, upper, size)
