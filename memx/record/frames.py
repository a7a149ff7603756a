"""Which lines of Python are running when memory is allocated."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from .calls import before

if TYPE_CHECKING:
    from .child import Sender

__all__ = ["watch_frames"]

_MOST_FRAMES = 64  # of a stack, the innermost
_MOST_STACKS = 200_000
#: Between an operation and the mode that watches it.
_AROUND = ("torch/_dynamo/eval_frame.py", "torch/_compile.py", "torch/_ops.py")


def watch_frames(torch: Any, sender: Sender, for_good: bool) -> None:
    """Mark the stack before each operation of this thread and of the backward passes that it starts.

    Parameters
    ----------
    torch : module
    sender : Sender
    for_good : bool
        Whether to go on when the program compiles functions, which are run as they are written then.
    """
    watch = _Watch(torch, sender)
    watch.__enter__()
    if not for_good:
        before(torch, "compile", watch.leave)


class _Watch(TorchDispatchMode):
    def __init__(self, torch: Any, sender: Sender) -> None:
        super().__init__()
        self._count_devices = torch.cuda.device_count
        self._devices: int | None = None
        self._sender = sender
        self._known: dict[tuple[CodeType | int, ...], int] = {}
        self._now: dict[int, int] = {}
        self._told = {0}
        self._left = False

    def leave(self) -> None:
        """Mark nothing more; what comes is not by the line that was marked last."""
        if self._left:
            return
        self._left = True
        for device in self._sender.devices():
            self._sender.mark(["stack", 0, []], device)
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if self._left or not self._sender.is_open():
            return function(*arguments, **(named or {}))
        caller: FrameType | None = sys._getframe(1)
        while caller is not None and caller.f_code.co_filename.endswith(_AROUND):
            caller = caller.f_back
        stack = self._mark(caller)
        out = function(*arguments, **(named or {}))
        if len(self._now) != self._devices:
            self._look_for_new(stack, caller)
        return out

    def _look_for_new(self, stack: int, caller: FrameType | None) -> None:
        """Tell devices that have come into use what ran at their first allocation, when there was nothing to mark."""
        for device in self._sender.devices():
            if device not in self._now:
                self._devices = self._count_devices()
                self._now[device] = stack
                self._sender.mark(["stack", stack, _told(caller)], device)

    def _mark(self, caller: FrameType | None) -> int:
        key: list[CodeType | int] = []
        frame = caller
        while frame is not None and len(key) < 2 * _MOST_FRAMES:
            key += frame.f_code, frame.f_lasti
            frame = frame.f_back
        known = self._known.get(tuple(key))
        if known is None:
            known = len(self._known) + 1 if len(self._known) < _MOST_STACKS else 0
            if known:
                self._known[tuple(key)] = known
        told = known not in self._told
        for device, marked in self._now.items():
            if marked != known:
                self._now[device] = known
                self._sender.mark(["stack", known, _told(caller)] if told else ["stack", known], device)
                self._told.add(known)
        return known


def _told(frame: FrameType | None) -> list[tuple[str, int, str]]:
    """File, line and function of each frame, the innermost first."""
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return found
