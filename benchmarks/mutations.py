"""Does a test notice when one line of the allocator core is wrong?

    python benchmarks/mutations.py [--only NAME] [--work DIRECTORY] [--output docs/mutations.md]

Copies the sources and the installed package to a directory, builds the core there once, and then for each mutation
below: changes the copy, builds it again, runs the tests of the core until the first fails, and changes it back. A
mutation that no test fails for has survived; the exit status says whether one has. Needs cmake, ninja and nanobind,
and memx installed into the repository (``memx/_native``).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mutations_list import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
# Those first that say most in a second.
INTEGRATION = ("order", "captures", "lost", "reclaim", "wide_handles", "moves")
TESTS = (
    *(f"tests/integration/test_{name}.py" for name in INTEGRATION),
    *(
        f"tests/allocator/test_{name}.py"
        for name in ("framework", "eager", "lazy", "eviction", "discardable", "places", "ahead", "failures", "states")
    ),
    "tests/cases",
    "tests/integration/test_random_events.py",
    "tests/allocator/test_machine.py",
    "tests/integration/test_patterns.py",
    "tests/integration/test_beyond_cases.py",
)
LIMIT_S = 600


@dataclass
class Outcome:
    """What became of a mutation: the first test that failed, or None, and its complaint."""

    mutation: Mutation
    test: str | None
    complaint: str
    seconds: float


class Workshop:
    """A copy of the repository in which the core is mutated, built and tested."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._build = root / "build"
        self._right: dict[str, str] = {}
        for name in ("native", "memx", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", "sim" if name == "native" else "")
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in ("CMakeLists.txt", "pyproject.toml"):
            shutil.copy2(ROOT / name, root / name)
        self._run(
            "cmake", "-S", root, "-B", self._build, "-G", "Ninja", "-DMEMX_BUILD_SIM=OFF", "-DMEMX_BUILD_PLAN=OFF",
            f"-DPython_EXECUTABLE={sys.executable}",
        )  # fmt: skip

    def apply(self, mutation: Mutation) -> None:
        """Change the sources."""
        for name, right, wrong in mutation.edits:
            path = self.root / "native" / name
            text = path.read_text()
            if text.count(right) != 1:
                raise SystemExit(f"{mutation.name}: {name} has {text.count(right)} times\n{right}")
            self._write(name, text.replace(right, wrong))

    def undo(self, mutation: Mutation) -> None:
        """Change them back."""
        for name in {name for name, _, _ in mutation.edits}:
            self._write(name, self._right[name])

    def _write(self, name: str, text: str) -> None:
        path = self.root / "native" / name
        self._right.setdefault(name, path.read_text())
        path.write_text(text)
        # A header's users and what two changes in one clock tick leave behind are built again too.
        for built in self._build.rglob("*.o" if path.suffix == ".h" else path.name + ".o"):
            built.unlink()

    def build(self) -> None:
        """Build the core and put it into the copied package."""
        self._run("cmake", "--build", self._build)
        (module,) = (self._build / "native").glob("_native.*")
        shutil.copy(module, self.root / "memx" / module.name)

    def test(self, tests: tuple[str, ...] = ()) -> tuple[str | None, str]:
        """The first test that fails, and what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--timeout=90",
             *(tests or TESTS)],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return None, ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?: - (.*))?$", done.stdout, re.MULTILINE)
        if failed:
            return failed[1], failed[2] or ""
        return "the test run itself", f"ended with status {done.returncode}"

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")


def judge(workshop: Workshop, mutation: Mutation) -> Outcome:
    """Try one mutation."""
    start = time.perf_counter()
    workshop.apply(mutation)
    try:
        workshop.build()
        test, complaint = workshop.test(mutation.tests)
    except subprocess.TimeoutExpired:
        test, complaint = "the test run itself", f"not over after {LIMIT_S} s"
    finally:
        workshop.undo(mutation)
    return Outcome(mutation, test, complaint, time.perf_counter() - start)


PAGE = """# Mutations of the allocator core

Each row is a line of the core made wrong on purpose, and the first test that failed for it. Written by
`benchmarks/mutations.py`, which builds the core once a row and stops at the first failure, so most rows are caught by
more tests than the one named. Tests of `test_random_events` are random programs: they fail for what no directed test
was written for.

{count} mutations, {survived} survived.

| what is wrong | where | first test that fails |
| --- | --- | --- |
"""


def page(outcomes: list[Outcome]) -> str:
    """Markdown."""
    survived = sum(outcome.test is None for outcome in outcomes)
    rows = []
    for outcome in outcomes:
        test = "**none**" if outcome.test is None else f"`{outcome.test.removeprefix('tests/')}`"
        files = ", ".join(sorted({f"`{Path(name).name}`" for name, _, _ in outcome.mutation.edits}))
        rows.append(f"| {outcome.mutation.what} | {files} | {test} |")
    return PAGE.format(count=len(outcomes), survived=survived or "none") + "\n".join(rows) + "\n"


def main() -> int:
    """Try them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of mutations; default: all")
    parser.add_argument(
        "--work", type=Path, help="directory to build in, emptied before and kept; default: a temporary one"
    )
    parser.add_argument("--output", type=Path, help="write the table there")
    arguments = parser.parse_args()
    chosen = [m for m in MUTATIONS if not arguments.only or m.name in arguments.only]
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.work or Path(temporary)
        if arguments.work and arguments.work.exists():
            shutil.rmtree(arguments.work)
        root.mkdir(parents=True, exist_ok=True)
        workshop = Workshop(root)
        workshop.build()
        test, complaint = workshop.test()
        if test is not None:
            raise SystemExit(f"without a mutation {test} fails: {complaint}")
        outcomes = []
        for mutation in chosen:
            outcomes.append(judge(workshop, mutation))
            found = outcomes[-1]
            verdict = f"caught by {found.test} {found.complaint[:100]}" if found.test else "SURVIVED"
            print(f"{mutation.name} ({found.seconds:.0f} s): {verdict}", flush=True)
    if arguments.output:
        arguments.output.write_text(page(outcomes))
    return any(outcome.test is None for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
