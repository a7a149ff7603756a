"""One line of a trace to one event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidValueError
from ..sizes import parse_size
from . import events as ev

__all__ = ["MalformedError", "boolean", "member", "parse_event", "size", "text"]

Fields = dict[str, Any]


class MalformedError(Exception):
    """What is wrong with a line; the reader adds the file and the line."""


_MISSING = object()


def _required(fields: Fields, key: str) -> Any:
    value = fields.get(key, _MISSING)
    if value is _MISSING:
        raise MalformedError(f"{key!r} is missing")
    return value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _identity(value: Any, key: str) -> ev.Id:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise MalformedError(f"{key!r} must be a string or an integer, not {_shown(value)}")


def _integer(value: Any, key: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedError(f"{key!r} must be an integer, not {_shown(value)}")
    if value < least:
        raise MalformedError(f"{key!r} must be at least {least}, not {_shown(value)}")
    return value


def text(value: Any, key: str) -> str:
    """The value of a field that must be a string."""
    if not isinstance(value, str):
        raise MalformedError(f"{key!r} must be a string, not {_shown(value)}")
    return value


def boolean(value: Any, key: str) -> bool:
    """The value of a field that must be true or false."""
    if not isinstance(value, bool):
        raise MalformedError(f"{key!r} must be true or false, not {_shown(value)}")
    return value


def member(value: Any, key: str, allowed: tuple[str, ...]) -> str:
    """The value of a field that must be one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise MalformedError(f"{key!r} must be one of {', '.join(allowed)}, not {_shown(value)}")
    return value


def size(value: Any, key: str, page: int | None, least: int | None = None) -> int:
    """The value of a field that must be a size; any integer unless ``least`` says otherwise."""
    try:
        nbytes = parse_size(value, page)
    except InvalidValueError as error:
        raise MalformedError(f"{key!r}: {error}") from None
    if least is not None and nbytes < least:
        raise MalformedError(f"{key!r} must be at least {least} bytes, not {_shown(value)}")
    return nbytes


def _expect(fields: Fields) -> str:
    value = fields.get("expect", "ok")
    return "ok" if value == "ok" else member(value, "expect", ev.EXPECTATIONS)


def _stream(fields: Fields, key: str = "stream") -> int:
    return _integer(_required(fields, key), key)


def _alloc(fields: Fields, page: int, line: int) -> ev.Alloc:
    tag = fields.get("tag")
    return ev.Alloc(
        _identity(_required(fields, "id"), "id"),
        size(_required(fields, "size"), "size", page),
        _integer(fields.get("stream", 0), "stream"),
        size(fields.get("align", 0), "align", page),
        None if tag is None else text(tag, "tag"),
        boolean(fields.get("host_ok", True), "host_ok"),
        _expect(fields),
        line,
    )


def _free(fields: Fields, page: int, line: int) -> ev.Free:  # noqa: ARG001
    stream = fields.get("stream")
    return ev.Free(
        _identity(_required(fields, "id"), "id"),
        None if stream is None else _integer(stream, "stream"),
        _expect(fields),
        line,
    )


def _operand(value: Any, key: str, page: int) -> ev.Operand:
    if not isinstance(value, dict):
        return ev.Operand(_identity(value, f"{key} entry"))
    nbytes = value.get("bytes")
    return ev.Operand(
        _identity(_required(value, "id"), f"{key} id"),
        size(value.get("offset", 0), f"{key} offset", page, least=0),
        None if nbytes is None else size(nbytes, f"{key} bytes", page, least=0),
    )


def _operands(fields: Fields, key: str, page: int) -> tuple[ev.Operand, ...]:
    values = fields.get(key, ())
    if values == ():
        return ()
    if not isinstance(values, list):
        raise MalformedError(f"{key!r} must be a list, not {_shown(values)}")
    return tuple([_operand(value, key, page) for value in values])


def _kernel(fields: Fields, page: int, line: int) -> ev.Kernel:
    name = fields.get("name")
    return ev.Kernel(
        _operands(fields, "reads", page),
        _operands(fields, "writes", page),
        _integer(fields.get("stream", 0), "stream"),
        None if name is None else text(name, "name"),
        _expect(fields),
        line,
    )


def _record_stream(fields: Fields, page: int, line: int) -> ev.RecordStream:  # noqa: ARG001
    return ev.RecordStream(_identity(_required(fields, "id"), "id"), _stream(fields), line)


def _wait(fields: Fields, page: int, line: int) -> ev.Wait:  # noqa: ARG001
    return ev.Wait(_stream(fields), _stream(fields, "on"), line)


def _sync(fields: Fields, page: int, line: int) -> ev.Sync:  # noqa: ARG001
    stream = fields.get("stream")
    return ev.Sync(None if stream is None else _integer(stream, "stream"), line)


def _on_stream(kind: Callable[[int, int], ev.Event]) -> Callable[[Fields, int, int], ev.Event]:
    return lambda fields, _page, line: kind(_stream(fields), line)


def _bare(kind: Callable[[int], ev.Event]) -> Callable[[Fields, int, int], ev.Event]:
    return lambda _fields, _page, line: kind(line)


def _declare(fields: Fields, page: int, line: int) -> ev.Stream:  # noqa: ARG001
    number = _stream(fields)
    if number == 0:
        raise MalformedError("stream 0 is the legacy default stream and cannot be declared")
    return ev.Stream(number, member(fields.get("kind", "blocking"), "kind", ev.STREAM_KINDS), line)


def _thread(fields: Fields, page: int, line: int) -> ev.Thread:  # noqa: ARG001
    return ev.Thread(_identity(_required(fields, "thread"), "thread"), line)


def _pause(fields: Fields, page: int, line: int) -> ev.Pause:  # noqa: ARG001
    return ev.Pause(text(_required(fields, "tag"), "tag"), boolean(fields.get("keep", True), "keep"), line)


def _resume(fields: Fields, page: int, line: int) -> ev.Resume:  # noqa: ARG001
    return ev.Resume(text(_required(fields, "tag"), "tag"), line)


def _capture(action: str) -> Callable[[Fields, int, int], ev.Event]:
    return lambda fields, _page, line: ev.Capture(action, _stream(fields), line)


def _fail(fields: Fields, page: int, line: int) -> ev.Fail:  # noqa: ARG001
    probability = fields.get("probability", 0)
    if not isinstance(probability, (int, float)) or isinstance(probability, bool):
        raise MalformedError(f"'probability' must be a number, not {_shown(probability)}")
    if not 0 <= probability <= 1:
        raise MalformedError(f"'probability' must be between 0 and 1, not {_shown(probability)}")
    if not fields.keys() & {"at", "every", "probability"}:
        raise MalformedError("fail needs 'at', 'every' or 'probability'")
    return ev.Fail(
        text(_required(fields, "call"), "call"),
        _integer(fields.get("at", 0), "at"),
        _integer(fields.get("every", 0), "every"),
        float(probability),
        text(fields.get("code", "OUT_OF_MEMORY"), "code"),
        line,
    )


def _check(fields: Fields, page: int, line: int) -> ev.Check | ev.CheckContents:
    if ("stat" in fields) == ("id" in fields):
        raise MalformedError("check needs either 'stat' or 'id'")
    if "id" in fields:
        return ev.CheckContents(_identity(fields["id"], "id"), line)
    equals, most, least = [
        size(fields[key], key, page) if fields.get(key) is not None else None for key in ("equals", "max", "min")
    ]
    if equals is None and most is None and least is None:
        raise MalformedError("check needs 'equals', 'max' or 'min'")
    return ev.Check(text(fields["stat"], "stat"), equals, most, least, line)


def _step(fields: Fields, page: int, line: int) -> ev.Step:  # noqa: ARG001
    name = fields.get("name")
    return ev.Step(None if name is None else text(name, "name"), line)


_PARSERS: dict[str, Callable[[Fields, int, int], ev.Event]] = {
    "alloc": _alloc,
    "free": _free,
    "kernel": _kernel,
    "record_stream": _record_stream,
    "wait": _wait,
    "sync": _sync,
    "hold": _on_stream(ev.Hold),
    "release": _on_stream(ev.Release),
    "stream": _declare,
    "thread": _thread,
    "trim": _bare(ev.Trim),
    "reset_peak": _bare(ev.ResetPeak),
    "rebalance": _bare(ev.Rebalance),
    "pause": _pause,
    "resume": _resume,
    "fail": _fail,
    "check": _check,
    "step": _step,
    **{op: _capture(action) for op, action in ev.Capture.ops.items()},
}


def parse_event(fields: Any, page: int, line: int) -> ev.Event:
    """The event of a decoded line.

    Raises
    ------
    MalformedError
        A field is missing or of the wrong kind, or the operation is unknown. Unknown fields are ignored.
    """
    if not isinstance(fields, dict):
        raise MalformedError(f"an event must be an object, not {_shown(fields)}")
    op = _required(fields, "op")
    parser = _PARSERS.get(op) if isinstance(op, str) else None
    if parser is None:
        raise MalformedError(f"unknown operation {_shown(op)}")
    return parser(fields, page, line)
