"""The events of a trace, one class an operation.

Sizes are in bytes and already resolved (``2p`` is a number here). ``line`` is where the event stands in its
file, from 1, and takes no part in comparisons; 0 for an event made in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

__all__ = [
    "EXPECTATIONS",
    "STREAM_KINDS",
    "Alloc",
    "Capture",
    "Check",
    "CheckContents",
    "Event",
    "Fail",
    "Free",
    "Hold",
    "Id",
    "Kernel",
    "Operand",
    "Pause",
    "Rebalance",
    "RecordStream",
    "Release",
    "ResetPeak",
    "Resume",
    "Step",
    "Stream",
    "Sync",
    "Thread",
    "Trim",
    "Wait",
]

Id: TypeAlias = int | str

EXPECTATIONS = ("ok", "oom", "invalid", "error", "any")
STREAM_KINDS = ("blocking", "nonblocking", "per_thread")


@dataclass(slots=True)
class Operand:
    """A buffer, or ``bytes`` of it from ``offset`` on (None: to its end), that a kernel reads or writes."""

    id: Id
    offset: int = 0
    bytes: int | None = None


@dataclass(slots=True)
class Alloc:
    op: ClassVar[str] = "alloc"
    id: Id
    size: int
    stream: int = 0
    align: int = 0
    tag: str | None = None
    host_ok: bool = True
    expect: str = "ok"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Free:
    """``stream`` None: the allocation's."""

    op: ClassVar[str] = "free"
    id: Id
    stream: int | None = None
    expect: str = "ok"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Kernel:
    op: ClassVar[str] = "kernel"
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    stream: int = 0
    name: str | None = None
    expect: str = "ok"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class RecordStream:
    op: ClassVar[str] = "record_stream"
    id: Id
    stream: int
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Wait:
    """Later work on ``stream`` follows all work so far on ``on``."""

    op: ClassVar[str] = "wait"
    stream: int
    on: int
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Sync:
    """The host waits for ``stream``, or for every stream of every thread (None)."""

    op: ClassVar[str] = "sync"
    stream: int | None = None
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Hold:
    op: ClassVar[str] = "hold"
    stream: int
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Release:
    op: ClassVar[str] = "release"
    stream: int
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Stream:
    op: ClassVar[str] = "stream"
    stream: int
    kind: str = "blocking"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Thread:
    """The following events come from this host thread."""

    op: ClassVar[str] = "thread"
    thread: Id
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Trim:
    op: ClassVar[str] = "trim"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class ResetPeak:
    op: ClassVar[str] = "reset_peak"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Rebalance:
    op: ClassVar[str] = "rebalance"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Pause:
    op: ClassVar[str] = "pause"
    tag: str
    keep: bool = True
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Resume:
    op: ClassVar[str] = "resume"
    tag: str
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Capture:
    """``action`` is "begin", "end", "abort" or "release" (of the graph that the stream's capture made)."""

    ops: ClassVar[dict[str, str]] = {
        "capture_begin": "begin",
        "capture_end": "end",
        "capture_abort": "abort",
        "graph_release": "release",
    }
    action: str
    stream: int
    line: int = field(default=0, compare=False)

    @property
    def op(self) -> str:
        """The operation's name in the file."""
        return "graph_release" if self.action == "release" else f"capture_{self.action}"


@dataclass(slots=True)
class Fail:
    """Fault injection: the ``at``-th call from here, every ``every``-th, or each with ``probability``."""

    op: ClassVar[str] = "fail"
    call: str
    at: int = 0
    every: int = 0
    probability: float = 0.0
    code: str = "OUT_OF_MEMORY"
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Check:
    """A statistic against bounds, in its own unit."""

    op: ClassVar[str] = "check"
    stat: str
    equals: int | None = None
    max: int | None = None
    min: int | None = None
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class CheckContents:
    """A buffer holds what was last written to it."""

    op: ClassVar[str] = "check"
    id: Id
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Step:
    op: ClassVar[str] = "step"
    name: str | None = None
    line: int = field(default=0, compare=False)


Event: TypeAlias = (
    Alloc
    | Free
    | Kernel
    | RecordStream
    | Wait
    | Sync
    | Hold
    | Release
    | Stream
    | Thread
    | Trim
    | ResetPeak
    | Rebalance
    | Pause
    | Resume
    | Capture
    | Fail
    | Check
    | CheckContents
    | Step
)
