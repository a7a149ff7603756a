"""What an estimate makes of a process's allocations, where no PyTorch is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.errors import InvalidValueError
from memx.estimate.devices import DEVICES, device_bytes
from memx.estimate.events import events_of
from memx.estimate.history import CATEGORIES, History, round_up
from memx.estimate.raw import ALLOC, FREE, Raw
from memx.estimate.report import add_plan, basics
from memx.estimate.untrusted import untrusted
from memx.trace import events as ev

KIB = 1 << 10
PARAMETER, STATE, GRADIENT, ACTIVATION, TEMPORARY, WORKSPACE, EXTRA, AGAIN = range(0x1000, 0x9000, 0x1000)


class Program:
    """Two steps of training, as an estimated process would write them down."""

    def __init__(self) -> None:
        self.raw = Raw(
            program="train.py", frames=[("train.py", 7, "forward", "linear", False), ("", 0, "", "mm", True)]
        )
        self.counts = [0, 0]

    def alloc(self, address: int, nbytes: int, frame: int = 0) -> None:
        self.raw.events.append((ALLOC, address, nbytes, 0, frame))
        self.counts[ALLOC] += 1

    def free(self, *addresses: int) -> None:
        for address in addresses:
            self.raw.events.append((FREE, address, 0, 0, -1))
            self.counts[FREE] += 1

    def mark(self, kind: str, **what: Any) -> None:
        self.raw.marks.append((*self.counts, kind, what))  # type: ignore[arg-type]

    def step(self, first: bool) -> None:
        self.alloc(ACTIVATION, 8 * KIB)
        self.alloc(TEMPORARY, 3 * KIB)
        self.free(TEMPORARY)
        if first:
            self.alloc(WORKSPACE, 16 * KIB)
        self.mark("backward_begins")
        self.alloc(AGAIN, 2 * KIB, frame=1)
        self.alloc(TEMPORARY, 5 * KIB, frame=-1)
        self.alloc(GRADIENT, 4 * KIB - 100, frame=-1)
        self.free(TEMPORARY, AGAIN, ACTIVATION)
        self.mark("backward_ends")
        owners = {"parameters": [PARAMETER], "gradients": [GRADIENT], "state": []}
        self.mark("step_begins", **owners)
        if first:
            self.alloc(STATE, 4 * KIB)
        self.alloc(TEMPORARY, KIB)
        self.free(TEMPORARY)
        self.mark("step_ends", main=True, **{**owners, "state": [STATE]})
        self.raw.steps += 1
        self.free(GRADIENT)

    def end(self) -> Raw:
        self.raw.names = {PARAMETER: "weight"}
        self.mark("clearing")
        self.free(WORKSPACE)
        self.mark("cleared")
        return self.raw


def trained() -> Raw:
    program = Program()
    program.alloc(PARAMETER, 4 * KIB)
    program.alloc(EXTRA, KIB)
    program.step(True)
    program.step(False)
    return program.end()


def test_what_memory_was_for() -> None:
    history = History.of(trained())
    found = [(one.bytes, one.category) for one in history.allocations]
    first, second = found[:10], found[10:]
    assert first == [
        (4 * KIB, "parameters"),
        (KIB, "other"),
        (8 * KIB, "activations"),
        (3 * KIB, "temporaries"),
        (16 * KIB, "workspaces"),
        (2 * KIB, "activations"),
        (5 * KIB, "temporaries"),
        (4 * KIB - 100, "gradients"),
        (4 * KIB, "optimizer state"),
        (KIB, "temporaries"),
    ]
    assert second == [row for row in first[2:] if row[1] not in ("workspaces", "optimizer state")]
    assert [one.name for one in history.allocations[:2]] == ["weight", ""]
    assert {one.name for one in history.allocations if one.category == "gradients"} == {"weight"}
    # In the second step's backward pass everything is there.
    assert history.peak_bytes == (4 + 1 + 8 + 16 + 2 + 5 + 4 + 4) * KIB
    assert sum(history.by_category(history.peak_event).values()) == history.peak_bytes
    assert len(history.steps) == 2


def test_the_report_of_it() -> None:
    raw = trained()
    history = History.of(raw)
    report = basics(raw, history, 0)
    assert report["peak_at"] == "step 2"
    assert set(report["by_category"]) == set(CATEGORIES)
    assert [one["bytes"] for one in report["largest"]] == [n * KIB for n in (16, 8, 5, 4, 4, 4, 2, 1)]
    assert report["largest"][1]["where"] == "train.py:7"
    assert max(point["total"] for point in report["curve"]["points"]) == history.peak_bytes
    add_plan(report, history, 1.0)
    assert report["planned_bytes"] == history.peak_bytes


def test_the_curve_starts_and_ends_where_the_step_does() -> None:
    history = History.of(trained())
    begin, end = history.last_step()
    points = history.curve(10**6)
    assert len(points) == end - begin
    for point in points:
        expected = history.by_category(begin + point["event"])
        assert dict(zip(CATEGORIES, point["bytes"], strict=True)) == expected


def test_the_trace_of_it() -> None:
    raw = trained()
    events = list(events_of(raw, History.of(raw)))
    sizes = [event.size for event in events if isinstance(event, ev.Alloc)]
    assert sizes == [event[2] for event in raw.events if event[0] == ALLOC]
    assert sum(isinstance(event, ev.Free) for event in events) == sum(event[0] == FREE for event in raw.events)
    steps = [number for number, event in enumerate(events) if isinstance(event, ev.Step)]
    assert len(steps) == 2
    last = events[steps[1] - 1]
    assert isinstance(last, ev.Free)


def test_raw_survives_json() -> None:
    import json

    raw = trained()
    assert Raw.from_json(json.loads(json.dumps(raw.as_json()))) == raw


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 10_000)), max_size=60))
def test_the_peak_is_a_sum_over_what_lives(moves: list[tuple[int, int]]) -> None:
    raw = Raw()
    live: dict[int, int] = {}
    most = 0
    for slot, nbytes in moves:
        if slot in live:
            raw.events.append((FREE, slot, 0, 0, -1))
            del live[slot]
        else:
            raw.events.append((ALLOC, slot, nbytes, 0, -1))
            live[slot] = -(-nbytes // 512) * 512
        most = max(most, sum(live.values()))
    history = History.of(raw)
    assert history.peak_bytes == most
    if most:
        assert sum(round_up(one.bytes) for one in history.at(history.peak_event)) == most


def test_a_truncated_record_says_so() -> None:
    raw = trained()
    raw.take([], Path("/torch"))
    raw.missing = 5
    assert untrusted(raw)[-1]["what"] == "5 allocations"


@pytest.mark.parametrize(
    ("kernels", "error", "words"),
    [
        (["_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelIN"], "", ["nonzero", "data"]),
        (["_ZN2at6native13im2col_kernelIfEEv", "cublasSgemm_v2"], "", ["convolutions", "cuDNN"]),
        (["my_fast_kernel"], "", ["custom kernels: my_fast_kernel"]),
        (["triton_poi_fused_0"], "", ["torch.compile"]),
        ([], "RuntimeError: cusolver error: CUSOLVER_STATUS_NOT_INITIALIZED", ["cuSOLVER", "not simulated"]),
        ([], "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", ["cuFFT"]),
        (["_ZN2at6native29vectorized_elementwise_kernelILi8", "cublasSgemm_v2"], "", []),
    ],
)
def test_what_is_not_to_be_trusted(kernels: list[str], error: str, words: list[str]) -> None:
    found = untrusted(Raw(kernels=dict.fromkeys(kernels, 1), error=error))
    assert len(found) == (1 if words else 0)
    for word in words:
        assert word in f"{found[0]['what']} {found[0]['why']}"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("24GiB", 24 << 30),
        ("h100-80gb", 81559 << 20),
        ("H100", 0),
        ("NVIDIA GeForce RTX 4090", 24564 << 20),
        ("rtx4090", 24564 << 20),
        ("a100 40gb", 40960 << 20),
        ("a100", 0),
        ("gtx1", 0),
        ("0", 0),
        ("-3GiB", 0),
    ],
)
def test_devices_by_name_and_size(text: str, nbytes: int) -> None:
    if text == "H100":
        assert device_bytes(text) == device_bytes("h100-80gb")
    elif nbytes:
        assert device_bytes(text) == nbytes
    else:
        with pytest.raises(InvalidValueError, match="a100-40gb" if text == "a100" else "device"):
            device_bytes(text)


def test_every_device_has_about_the_memory_in_its_name() -> None:
    for name, mib in DEVICES.items():
        nominal = int(name.rpartition("-")[2].removesuffix("gb"))
        assert 0.93 * nominal <= mib / 1024 <= 1.04 * nominal, name
        assert device_bytes(name) == mib << 20
