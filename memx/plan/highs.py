"""HiGHS as the planner uses it: silent, on one thread, beside whatever else the process does with it."""

from __future__ import annotations

from typing import Any

from ..errors import PlanError

__all__ = ["run", "solver"]


def solver() -> Any:
    """A ``highspy.Highs`` that never prints: its callbacks' first use would, unless told before."""
    import highspy

    class Quiet(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    highs = Quiet()
    highs.setOptionValue("threads", 1)
    return highs


def run(highs: Any) -> None:
    """Solve.

    The process's solvers share their threads, and one that asks for another number than the first did is refused: it
    runs with theirs then.

    Raises
    ------
    PlanError
        HiGHS failed.
    """
    import highspy

    if highs.run() != highspy.HighsStatus.kError:
        return
    highs.setOptionValue("threads", 0)
    if highs.run() == highspy.HighsStatus.kError:
        raise PlanError(f"HiGHS failed: {highs.getModelStatus()}")
