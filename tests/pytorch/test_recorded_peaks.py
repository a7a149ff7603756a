"""Recorded peaks differ from arithmetic's on the CPU by the operations of a GPU alone, to the byte."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memx.trace import Trace

from .child import start
from .holders import Peak, peak_of

pytestmark = [pytest.mark.torch_cuda, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ELEMENTS, LAYERS, UNFOLDED = 1 << 18, 4, 4 * 16 * 9 * 64 * 64  # of recorded_models.py
BESIDE = Path(__file__).parents[3] / "shared" / "data" / "traces"


def recorded(folder: Path, model: str) -> Peak:
    trace = folder / "t.jsonl.gz"
    program = [sys.executable, "-W", "ignore", str(HERE / "train_model.py"), str(HERE / "recorded_models.py")]
    record = ["-m", "memx", "record", "--simulate", "--operations", "-o", str(trace)]
    done = start([*record, "--", *program, model, "cuda"], CUBLAS_WORKSPACE_CONFIG=":0:0")
    assert done.returncode == 0, done.stderr
    return peak_of(Trace(trace))


def by_arithmetic(models: Path, model: str, device: str) -> int:
    program = [sys.executable, "-W", "ignore", str(HERE / "train_model.py"), str(models), model, device]
    done = start(["-m", "memx", "sim", "run", "--quiet", "--", *program, "--arithmetic"])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("model", ["dropout", "cells", "convolution"])
def test_what_differs_is_the_operations(tmp_path: Path, model: str) -> None:
    cpu, cuda = (by_arithmetic(HERE / "recorded_models.py", model, device) for device in ("cpu", "cuda"))
    found = recorded(tmp_path, model)
    assert found.without_insides == cuda
    assert sum(found.by_maker.values()) == found.bytes
    if model == "dropout":
        # A float mask, or one byte; and AdamW's count of steps, which is on the CPU.
        assert found.bytes == cuda
        assert cpu - cuda == LAYERS * 3 * ELEMENTS + 4
        assert found.by_maker["aten.native_dropout.default"] == LAYERS * ELEMENTS  # the masks
    elif model == "cells":
        assert found.by_maker["aten._thnn_fused_lstm_cell.default"] > 0
        assert cpu != cuda
    else:
        assert cpu == cuda
        assert found.bytes > cuda
        assert found.by_maker["aten.convolution_backward.default, inside"] == UNFOLDED


@pytest.mark.skipif(not BESIDE.exists(), reason="the shared traces are not beside this checkout")
@pytest.mark.parametrize("model", ["lstm2_b32_t64_adam", "unet_b4_256_sgd"])
def test_the_shared_models_are_these(model: str) -> None:
    given = Trace(BESIDE / f"{model}.jsonl.gz")
    assert by_arithmetic(BESIDE / "record.py", model, "cpu") == given.peak_live_bytes()
