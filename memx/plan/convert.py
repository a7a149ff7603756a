"""Layout problems and traces, one as the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import TextIOWrapper
from os import PathLike, fspath
from pathlib import Path, PurePath

import numpy as np

from ..errors import PlanError
from ..trace import Header, Trace, Writer, read
from ..trace import events as ev
from ..trace.files import open_writer, written_whole
from ..trace.rmm import read_rmm
from .buffers import Buffers
from .inputs import identify, read_buffers
from .snapshots import snapshot_events
from .tables import read_csv, unique_names, write_csv

__all__ = ["Conversion", "convert", "output_kind"]

_SUFFIXES = {".csv": "csv", ".jsonl": "trace"}
_COMPRESSED = (".gz", ".zst")


@dataclass(slots=True)
class Conversion:
    """What became of a file.

    Attributes
    ----------
    input, input_kind, output, output_kind : str
        Files, and what they are: ``"csv"``, ``"rmm"``, ``"snapshot"`` or ``"trace"``.
    buffers : int
    events : int or None
        Of a trace that was written.
    peak_live_bytes : int
        The most alive at once in what was written.
    left_out : dict of str to int
        What the output has no place for, and how often it occurs.
    seconds : float
    """

    input: str
    input_kind: str
    output: str
    output_kind: str
    buffers: int = 0
    events: int | None = None
    peak_live_bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def output_kind(path: str | PathLike[str]) -> str:
    """What a name asks for: a table (``.csv``) or a trace (``.jsonl``), compressed if it goes on ``.gz`` or ``.zst``.

    Raises
    ------
    PlanError
        Any other name.
    """
    name = PurePath(path)
    plain = name.with_suffix("") if name.suffix in _COMPRESSED else name
    try:
        return _SUFFIXES[plain.suffix]
    except KeyError:
        raise PlanError(
            f"{name}: written are tables, NAME.csv, and traces, NAME.jsonl, each also with .gz or .zst after it"
        ) from None


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    alignment: int | None = None,
    device: int | None = None,
) -> Conversion:
    """Write what one file says as a file of another kind.

    A layout planned from the output is one of the input: lifetimes that several streams or the order of equal
    moments make are the same. A trace made from a table allocates in order of ``lower``, and frees before it
    allocates; a table made from a trace has no streams, no kernels and no tags.

    Parameters
    ----------
    source : path
        A table, a trace, a PyTorch memory snapshot or an RMM log, known by its content.
    target : path
        See :func:`output_kind`. It appears whole or not at all.
    alignment : int, optional
        Bytes that the rows of a table made from anything else ask for at least; None: 512.
    device : int, optional
        Which device of a snapshot.

    Raises
    ------
    PlanError, TraceError
        With file, line and what is wrong.
    """
    started = time.perf_counter()
    done = Conversion(fspath(source), identify(source), fspath(target), output_kind(target))
    if Path(target).exists() and Path(target).samefile(source):
        raise PlanError(f"{done.output}: a file is not converted into itself")
    try:
        with written_whole(target) as part:
            if done.output_kind == "csv":
                _write_table(part, done, alignment, device)
            else:
                _write_trace(part, done, device)
    except OSError as error:
        raise PlanError(f"{done.output}: {error.strerror or error}") from None
    done.left_out = {what: count for what, count in done.left_out.items() if count}
    done.seconds = time.perf_counter() - started
    return done


def _write_table(path: Path, done: Conversion, alignment: int | None, device: int | None) -> None:
    buffers, _ = read_buffers(done.input, alignment, device)
    with open_writer(path) as raw, TextIOWrapper(raw, encoding="utf-8", newline="") as file:
        write_csv(file, buffers)
    done.buffers = len(buffers)
    done.peak_live_bytes = buffers.max_load()


def _write_trace(path: Path, done: Conversion, device: int | None) -> None:
    header, events = _events(done, device)
    with Writer(path, header) as writer:
        for event in events:
            if isinstance(event, ev.Step) and done.input_kind == "snapshot":
                continue
            writer.write(event)
    # Read back: what is written is a trace.
    summary = Trace(path).summary()
    done.buffers, done.events, done.peak_live_bytes = summary.buffers, summary.events, summary.peak_live_bytes


def _events(done: Conversion, device: int | None) -> tuple[Header, Iterable[ev.Event]]:
    header = Header(name=PurePath(done.input).name.split(".")[0])
    if done.input_kind == "trace":
        trace = read(done.input)
        return trace.header, trace
    if done.input_kind == "rmm":
        return header, read_rmm(done.input)
    if done.input_kind == "snapshot":
        return header, snapshot_events(done.input, device)
    buffers = read_csv(done.input)
    never = int((buffers.lower == buffers.upper).sum())
    done.left_out = {"offsets": int((buffers.fixed >= 0).sum()), "never alive": never}
    return header, table_events(buffers)


def table_events(buffers: Buffers) -> Iterator[ev.Event]:
    """A trace with the lifetimes of a table; what is never alive is not in it."""
    alive = np.flatnonzero(buffers.lower < buffers.upper)
    names = unique_names(buffers.ids)
    births = alive[np.argsort(buffers.lower[alive], kind="stable")].tolist()
    deaths = alive[np.argsort(buffers.upper[alive], kind="stable")].tolist()
    dead = 0
    for i in births:
        while buffers.upper[deaths[dead]] <= buffers.lower[i]:
            yield ev.Free(names[deaths[dead]])
            dead += 1
        alignment = int(buffers.alignment[i])
        yield ev.Alloc(names[i], int(buffers.size[i]), align=alignment if alignment > 1 else 0)
    for i in deaths[dead:]:
        yield ev.Free(names[i])
