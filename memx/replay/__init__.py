"""Replaying traces on a device, with real contents."""

from __future__ import annotations

from .apart import replay_apart
from .device import Limits, prepare_device, resolve_limits
from .engine import replay
from .results import Result

__all__ = ["Limits", "Result", "prepare_device", "replay", "replay_apart", "resolve_limits"]
