"""The planner's solver beside a program's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import memx

PROGRAM = """
import sys
import highspy

own = highspy.Highs()
own.setOptionValue("output_flag", False)
own.setOptionValue("threads", 2)
own.addVar(1.0, 5.0)
assert own.run() == highspy.HighsStatus.kOk

from memx.plan import Migration, segments

steps = [[(i, "r")] for i in (0, 1, 2, 0, 1, 2)]
plan = segments(Migration.of([4, 4, 4], steps), 8, 5.0, mode="unsegmented")
print(plan.lower_bound, plan.migrated_bytes)
"""


def said(threads: int) -> str:
    package = Path(memx.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace('"threads", 2', f'"threads", {threads}')],
        capture_output=True,
        text=True,
        check=False,
        cwd=package / "data",
        env={**os.environ, "PYTHONPATH": str(package.parent)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_that_solves_with_more_threads_gets_the_same_bound() -> None:
    assert said(2) == said(1) != ""
