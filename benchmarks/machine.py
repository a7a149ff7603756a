"""The machine that a benchmark runs on, in words."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def machine() -> str:
    """What this runs on, and how busy that is."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{time.strftime('%Y-%m-%d')}, {model}, {os.cpu_count()} cores, load {load}"
