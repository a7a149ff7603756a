"""What a resource says of its buffers and of its last uses."""

from __future__ import annotations

from dataclasses import dataclass

from .sizes import format_size


@dataclass(slots=True, frozen=True)
class Residency:
    """Where the bytes of a buffer are; see :meth:`MemoryResource.residency`.

    Attributes
    ----------
    device_bytes : int
    host_bytes : int
        On the host alone, be they within the GPU's reach there or not.
    moving_bytes : int
        Of pages that another thread or a copy is moving at this moment.
    unbacked_bytes : int
        Nowhere: not used yet, given up (``pause(keep=False)``), or to be filled again from the buffer's source.
    """

    device_bytes: int
    host_bytes: int
    moving_bytes: int
    unbacked_bytes: int


@dataclass(slots=True, frozen=True)
class Thrashing:
    """What the last uses of a lazy resource moved; see :meth:`MemoryResource.thrashing`.

    Attributes
    ----------
    uses : int
        How many uses (`resident` blocks) these are counted over.
    used_bytes, moved_bytes : int
        Bytes of pages that they named, and bytes moved either way for them.
    working_set_bytes : int
        Bytes of pages that any of them named.
    device_limit : int
        Bytes.
    """

    uses: int
    used_bytes: int
    moved_bytes: int
    working_set_bytes: int
    device_limit: int

    def __str__(self) -> str:
        return (
            f"thrashing: the last {self.uses} uses named {format_size(self.used_bytes)} and moved "
            f"{format_size(self.moved_bytes)}; together they touch {format_size(self.working_set_bytes)} on a device "
            f"limit of {format_size(self.device_limit)}: raise device_limit, or use less between one use of a buffer "
            "and the next"
        )
