"""Preparing a device where there is one already."""

from __future__ import annotations

import multiprocessing

import pytest

from memx import sim
from memx.errors import InvalidStateError
from memx.replay import Limits, prepare_device, replay
from memx.trace import events as ev

PAGE = 64 << 10


def _twice() -> list[str]:
    said = []
    limits = Limits(8 * PAGE, 8 * PAGE, PAGE, "default", False)
    for _ in range(2):
        assert prepare_device(limits, simulate=True, slack=32 * PAGE)
        assert replay([ev.Alloc(0, PAGE), ev.Kernel((), (ev.Operand(0),))], limits).ok
    for wanted in (lambda: prepare_device(Limits(1 << 30, PAGE, PAGE, "default", False), simulate=True), sim.simulate):
        try:
            wanted()
        except InvalidStateError as error:
            said.append(str(error))
    return said


def test_a_device_in_use_serves_again_if_it_is_large_enough() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        too_small, again = pool.apply(_twice)
    assert "a simulated device of 2.5 MiB in use, and a limit of 1 GiB needs a larger one" in too_small
    assert again == "the simulated driver is already in use in this process"


def test_a_driver_that_cannot_be_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def present(**_: object) -> None:
        raise InvalidStateError("a CUDA driver is already in use in this process")

    monkeypatch.setattr(sim, "simulate", present)
    monkeypatch.setattr(sim, "active", lambda: False)
    with pytest.raises(InvalidStateError, match="a CUDA driver is already in use"):
        prepare_device(Limits(PAGE, PAGE, PAGE, "default", False), simulate=True)
