"""The simulated driver's settings, as far as they need no driver."""

from __future__ import annotations

import pytest

from memx import InvalidValueError
from memx.sim.start import parse_setting


def test_settings_from_the_environment() -> None:
    assert parse_setting("memory=1GiB, page=64KiB,devices=2,host_mappable=0") == {
        "memory": "1GiB",
        "page": "64KiB",
        "devices": 2,
        "host_mappable": False,
    }
    assert parse_setting("1") == {}


@pytest.mark.parametrize("setting", ["memory", "colour=red", "devices=two", "host_mappable=yes", "memory=1,,page=1"])
def test_bad_settings_are_named(setting: str) -> None:
    with pytest.raises(InvalidValueError, match="MEMX_SIMULATE"):
        parse_setting(setting)
