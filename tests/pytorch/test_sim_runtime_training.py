"""Training on the simulated device: it runs, and its memory is what arithmetic with fake tensors says, to the byte."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import PROGRAM

pytestmark = pytest.mark.torch_cuda

MODELS = re.findall(r'^    "([\w-]+)": \(', PROGRAM.read_text(), re.MULTILINE)
# How far the two may be apart where an operator allocates something inside.
INSIDE_OPERATORS = {"block-dropout": 0.001, "text": 0.03, "experts": None}


@pytest.mark.parametrize("model", MODELS)
def test_training_takes_the_memory_that_arithmetic_says(results: dict[str, Any], model: str) -> None:
    result = results[model]
    assert not result["error"], result["error"]
    tolerance = INSIDE_OPERATORS.get(model, 0)
    if tolerance is not None:
        assert result["measured"] == pytest.approx(result["computed"], rel=tolerance, abs=0)


def test_training_leaves_no_race(results: dict[str, Any]) -> None:
    assert results["races"] == 0
