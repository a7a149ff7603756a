"""How errors are named and which of them an expectation allows; which ids may be named when."""

from __future__ import annotations

import pytest

from memx import DriverError, InvalidStateError, InvalidValueError, OutOfMemoryError
from memx.replay.buffers import Buffer, Buffers
from memx.replay.outcomes import is_expected, outcome_of
from memx.trace.events import Operand


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OutOfMemoryError("full"), "oom"),
        (DriverError("", 2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemMap"), "oom"),
        (DriverError("", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuLaunchKernel"), "driver"),
        (InvalidStateError("freed"), "invalid"),
        (InvalidValueError("negative"), "invalid"),
        (OverflowError("too large"), "invalid"),
        (TypeError("no integer"), "invalid"),
    ],
)
def test_outcomes(error: Exception, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize(
    ("expect", "allowed"),
    [
        ("ok", {"ok"}),
        ("oom", {"oom"}),
        ("invalid", {"invalid"}),
        ("error", {"oom", "invalid"}),
        ("any", {"ok", "oom", "invalid", "driver"}),
    ],
)
def test_expectations(expect: str, allowed: set[str]) -> None:
    every = ("ok", "oom", "invalid", "driver")
    assert {outcome for outcome in every if is_expected(expect, outcome)} == allowed


def test_a_freed_address_is_given_only_while_nobody_else_has_it() -> None:
    buffers = Buffers()
    buffers.add("a", Buffer(4096, 512, None))
    buffers.remove("a")
    assert buffers.freed_address("a") == 4096
    buffers.add("b", Buffer(4096, 512, None))
    with pytest.raises(InvalidStateError):
        buffers.freed_address("a")
    buffers.remove("b")
    assert buffers.freed_address("a") == 4096


def test_failed_ids_are_skipped_and_unknown_ones_refused() -> None:
    buffers = Buffers()
    buffers.add_failed("f")
    buffers.add("a", Buffer(4096, 512, None))
    assert buffers.find("f") is None
    assert buffers.ranges([Operand("f"), Operand("a")]) == [(buffers.find("a"), 0, 512)]
    with pytest.raises(InvalidStateError):
        buffers.find("never")
    with pytest.raises(InvalidStateError):
        buffers.ranges([Operand("never")])


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 513), (513, None), (512, 1), (1 << 63, 0)])
def test_parts_beyond_a_buffer_are_refused(offset: int, nbytes: int | None) -> None:
    buffers = Buffers()
    buffers.add("a", Buffer(4096, 512, None))
    with pytest.raises(InvalidValueError):
        buffers.ranges([Operand("a", offset, nbytes)])


@pytest.mark.parametrize(
    ("operand", "ends"),
    [
        (Operand("a"), [(0, 512)]),
        (Operand("a", 100), [(100, 512)]),
        (Operand("a", 100, 12), [(100, 112)]),
        (Operand("a", 512), []),
        (Operand("a", 0, 0), []),
    ],
)
def test_parts_within_a_buffer(operand: Operand, ends: list[tuple[int, int]]) -> None:
    buffers = Buffers()
    buffers.add("a", Buffer(4096, 512, None))
    assert [(start, end) for _buffer, start, end in buffers.ranges([operand])] == ends


def test_paused_buffers_are_refused() -> None:
    buffers = Buffers()
    buffers.add("a", Buffer(4096, 512, "w"))
    for buffer in buffers.tagged("w"):
        buffer.paused = True
    with pytest.raises(InvalidStateError, match="paused"):
        buffers.ranges([Operand("a")])
