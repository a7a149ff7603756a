"""Small numbers for stream handles."""

from __future__ import annotations

__all__ = ["PER_THREAD", "StreamNumbers"]

#: The handle that means the calling thread's own default stream.
PER_THREAD = 2
_LEGACY = (0, 1)


class StreamNumbers:
    """A trace's numbers for the streams of a program, in order of appearance; 0 is the legacy default stream."""

    def __init__(self) -> None:
        self._numbers = dict.fromkeys(_LEGACY, 0)

    def take(self, handle: int) -> tuple[int, bool]:
        """The number of a handle, and whether it is new."""
        known = self._numbers.get(handle)
        if known is not None:
            return known, False
        self._numbers[handle] = number = len(self._numbers) - len(_LEGACY) + 1
        return number, True
