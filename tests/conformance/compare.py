"""Say where two runs of the conformance tests differ: the simulated driver's and a GPU's.

    pytest tests/conformance --junitxml simulated.xml
    pytest tests/conformance -m gpu --junitxml gpu.xml
    python tests/conformance/compare.py simulated.xml gpu.xml

Compared are each test's outcome and the refusals that it met, by function and code.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_SHOWN = 5


@dataclass(frozen=True)
class Outcome:
    """How a test ended and what the driver refused in it."""

    result: str
    refusals: tuple[str, ...]


def outcomes(path: Path) -> dict[str, Outcome]:
    """By test, without the driver's kind in its name."""
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = re.sub(r"\b(simulated|gpu)-?|\[\]", "", f"{case.get('classname')}.{case.get('name')}")
        result = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
        said = [item.get("value", "") for item in case.iter("property") if item.get("name") == "refusals"]
        found[name] = Outcome(result, tuple(" ".join(said).split()))
    return found


def differences(first: dict[str, Outcome], second: dict[str, Outcome]) -> list[str]:
    """One line each."""
    lines = []
    for name in sorted(first.keys() | second.keys()):
        a, b = first.get(name), second.get(name)
        if a is None or b is None:
            lines.append(f"{name}: only in one of the two")
        elif a.result != b.result:
            lines.append(f"{name}: {a.result}, {b.result}")
        elif a.refusals != b.refusals:
            pairs = [f"{x or 'nothing'} / {y or 'nothing'}" for x, y in _uneven(a.refusals, b.refusals) if x != y]
            more = f"; and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
            lines.append(f"{name}: {'; '.join(pairs[:_SHOWN])}{more}")
    return lines


def _uneven(a: tuple[str, ...], b: tuple[str, ...]) -> list[tuple[str, str]]:
    length = max(len(a), len(b))
    return list(zip(a + ("",) * (length - len(a)), b + ("",) * (length - len(b)), strict=True))


def main(arguments: list[str]) -> int:
    """Print the differences."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    first, second = (outcomes(Path(name)) for name in arguments)
    lines = differences(first, second)
    for line in lines:
        print(line)
    print(f"{len(lines)} differences in {len(first.keys() | second.keys())} tests")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
