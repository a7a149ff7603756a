"""The main job in four parts, on a real training step that ships with memx."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import sim
from ..replay import Limits, prepare_device
from ..trace import Trace
from .parts import Part, Stage, oversubscribe, plan_layout, reuse_streams, share_tiers

__all__ = ["DEMO_TRACE", "Demo", "Part"]

#: One training step of ResNet-50, batch 32.
DEMO_TRACE = Path(__file__).parent.parent / "data" / "resnet50_b32_sgd.jsonl.gz"

_PARTS = (oversubscribe, reuse_streams, share_tiers, plan_layout)
# Real contents in little memory and seconds on a CPU; a GPU takes the step as it is.
_SIMULATED_SCALE = Fraction(1, 16)
_SIMULATED_PAGE = 64 << 10
_ALIGNED_TO = 1 << 20


@dataclass(slots=True)
class Demo:
    """A demo and what it has shown so far.

    Parameters
    ----------
    simulate : bool
        On the simulated device.

    Attributes
    ----------
    trace : Trace
        The step, scaled where the device is simulated.
    limits : Limits
        Of a device with half of the memory that the step needs.
    parts : list of Part
    """

    simulate: bool
    trace: Trace = field(init=False)
    limits: Limits = field(init=False)
    parts: list[Part] = field(default_factory=list, init=False)
    wall_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.trace = Trace(DEMO_TRACE, _SIMULATED_PAGE, _SIMULATED_SCALE) if self.simulate else Trace(DEMO_TRACE)
        peak = self.trace.peak_live_bytes()
        half = max(peak // 2, self.trace.summary().largest_operation_bytes)
        self.limits = Limits(
            device_limit=-(-half // _ALIGNED_TO) * _ALIGNED_TO,
            host_limit=2 * peak,
            page=self.trace.page,
            reuse="default",
            lazy=False,
        )

    def run(self, progress: Callable[[int], None] | None = None) -> Iterator[Part]:
        """Show the parts one by one."""
        start = time.perf_counter()
        roomy = replace(self.limits, device_limit=4 * self.trace.peak_live_bytes())
        prepare_device(roomy, self.simulate)
        stage = Stage(self.trace, self.limits, progress=progress)
        for make in _PARTS:
            self.parts.append(make(stage))
            self.wall_s = time.perf_counter() - start
            yield self.parts[-1]

    @property
    def ok(self) -> bool:
        """Whether every part did what it says."""
        return all(part.ok for part in self.parts)

    def mismatches(self) -> int:
        """Bytes that were not what had been written, over all parts."""
        return sum(result.mismatches for part in self.parts for result in part.results)

    def races(self) -> int | None:
        """Unordered accesses over all parts; None on a real device, which cannot tell."""
        counts = [result.races for part in self.parts for result in part.results]
        return None if None in counts else sum(count or 0 for count in counts)

    def as_json(self) -> dict[str, Any]:
        """The demo as the command line prints it.

        The bytes are the oversubscribed step's; races and mismatches are of all parts.
        """
        from cuda.core import Device

        first = self.parts[0].results[0]
        return {
            "device": Device(0).name,
            "simulated": sim.active(),
            "trace": self.trace.name,
            "peak_live_bytes": self.trace.peak_live_bytes(),
            "device_limit_bytes": self.limits.device_limit,
            "parts": [part.as_json() for part in self.parts],
            "peak_reserved_bytes": first.peak_reserved_bytes,
            "migrated_in_bytes": first.migrated_in_bytes,
            "migrated_out_bytes": first.migrated_out_bytes,
            "races": self.races(),
            "mismatches": self.mismatches(),
            "wall_s": self.wall_s,
        }
