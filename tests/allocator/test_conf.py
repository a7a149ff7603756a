"""Settings from the environment."""

from __future__ import annotations

import pytest

import memx
from memx import conf


def test_every_key() -> None:
    text = "device_limit:20GiB, host_limit:0 ,reuse:mutual,oversubscribe:False,page:4MiB,"
    assert conf.parse(text) == {
        "device_limit": "20GiB",
        "host_limit": "0",
        "reuse": "mutual",
        "oversubscribe": False,
        "page": "4MiB",
    }
    assert conf.parse("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device_limt:1GiB", "'device_limt:1GiB' is not understood; it takes key:value with device_limit"),
        ("device_limit", "'device_limit' is not understood"),
        ("device_limit:1GB", "device_limit:1GB: "),
        ("reuse:often", "reuse:often: it is not stream, default or mutual"),
        ("oversubscribe:maybe", "it is neither true nor false"),
        ("reuse:stream,reuse:mutual", "reuse is given twice"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, said: str) -> None:
    with pytest.raises(memx.InvalidValueError) as caught:
        conf.parse(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("MEMX_CONF: ")


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMX_CONF", "reuse:stream")
    assert conf.from_environment() == {"reuse": "stream"}
    monkeypatch.delenv("MEMX_CONF")
    assert conf.from_environment() == {}
