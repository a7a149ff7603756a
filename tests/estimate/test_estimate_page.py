"""The page and the command line of estimates, from a canned report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memx.cli import cli
from memx.errors import InvalidValueError
from memx.estimate.history import CATEGORIES, History
from memx.estimate.page import page_of, write_page
from memx.estimate.replays import Needs
from memx.estimate.report import add_needs, basics
from memx.estimate.text import print_report

from .test_estimate_history import trained


def report() -> dict[str, Any]:
    raw = trained()
    raw.program = "train.py --name '</script><b>'"
    raw.kernels = {"my_<kernel>": 1}
    found = basics(raw, History.of(raw), 0)
    add_needs(found, "torch-native", Needs(50 << 20, 48 << 20), 46 << 20)
    add_needs(found, "memx", Needs(45 << 20, 44 << 20, 0), 46 << 20)
    found["planned_bytes"] = found["peak_bytes"]
    found["seconds"] = {"program": 1.0, "all": 2.0}
    return found


class Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, str] = {}
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.data[self._open] = self.data.get(self._open, "") + data


def test_the_page_is_one_file_with_the_report_in_it() -> None:
    text = page_of(report())
    parts = Parts()
    parts.feed(text)
    assert not [attrs for _, attrs in parts.tags if "src" in attrs or "href" in attrs]
    assert "@import" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    data = json.loads(parts.data["data"])
    assert data["program"] == report()["program"]
    assert data["categories"] == list(CATEGORIES)
    assert "</script><b>" not in text
    for category in CATEGORIES:
        assert text.count(f"--{category.replace(' ', '-')}:") == 3  # light, dark, dark by choice


def test_the_page_cannot_be_written(tmp_path: Path) -> None:
    write_page(tmp_path / "a.html", report())
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    with pytest.raises(InvalidValueError, match="Is a directory"):
        write_page(tmp_path, report())


def test_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report())
    text = capsys.readouterr().out
    assert "Peak 44 KiB (step 2)" in text
    assert re.search(r"torch-native +50 MiB +48 MiB +no", text)
    assert re.search(r"memx +45 MiB +44 MiB +yes", text)
    assert "custom kernels: my_<kernel>" in text


BUS = {
    "step": 2,
    "largest_operation_bytes": 3 << 20,
    "placed_bytes": 9 << 20,
    "placed_told_bytes": 7 << 20,
    "moved_bytes": 5 << 20,
    "moved_told_bytes": None,
    "bound_bytes": 4 << 20,
    "assumed_bytes_per_second": 25_000_000_000,
    "modelled_seconds": {"placed": 0.5, "placed_told": 0.25, "moved": 0.125, "moved_told": None},
}


def test_what_crosses_the_bus(capsys: pytest.CaptureFixture[str]) -> None:
    found = report()
    found["device"]["over_the_bus"] = BUS
    print_report(found)
    text = capsys.readouterr().out
    assert re.search(r"modelled at 25 GB/s", text)
    assert re.search(r"PyTorch's allocator +9 MiB +0\.5 s", text)
    assert re.search(r"told the order +does not run so", text)
    assert re.search(r"moves less on average +4 MiB", text)
    found["device"]["over_the_bus"] = {"unknown": "nothing was seen"}
    print_report(found)
    assert "What would cross the bus is not known: nothing was seen." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "nothing", "--", "true"], "no size and no device: 'nothing'"),
        (["--device", "a100", "--", "true"], "a100-40gb or a100-80gb"),
        (["--steps", "0", "--", "true"], "--steps"),
        (["--html", "/no/such/folder/a.html", "--", "true"], "there is no such folder"),
        (["--", "no-such-program-anywhere"], "no program"),
        ([], "Missing argument"),
        (["--", "true"], "made no CUDA tensor"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["estimate", *arguments])
    assert result.exit_code == 2
    line = result.output.splitlines()[-1]
    assert line.startswith("memx: error: ")
    assert message in line
