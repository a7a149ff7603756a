"""The allocator core (C++). Addresses, sizes and stream handles are plain integers here."""

from collections.abc import Callable, Sequence
from typing import Any

class Resource:
    """One device's allocator: reservation, handles, pool and store."""

    def __init__(
        self,
        device: int,
        device_limit: int,
        host_limit: int,
        reuse: str = "default",
        lazy: bool = False,
        oversubscribe: bool = True,
        page: int = 0,
        framework: bool = False,
        eviction: str = "cost",
        low_water: int = 0,
        look_ahead: int = 0,
    ) -> None:
        """`framework`: the caller keeps its streams for good and announces its captures."""
    def allocate(
        self,
        nbytes: int,
        stream: int = 0,
        align: int = 0,
        placement: str = "prefer_device",
        tag: int = 0,
        refill: Any = None,
        priority: int = 0,
    ) -> int:
        """Address of a new buffer; 0 for size 0. Any integer is taken, bad ones are refused."""
    def free(self, address: int, stream: int | None = None) -> None:
        """Give a buffer back, ordered on `stream` (None: the allocation's)."""
    def record_stream(self, address: int, stream: int) -> None: ...
    def note_wait(self, stream: int, on: int) -> None: ...
    def exclude_stream(self, stream: int) -> None: ...
    def announce_capture(self, begin: bool) -> None:
        """A framework's capture is about to begin, or has ended; calls nest."""
    def private_tag(self, tag: int) -> None:
        """What a stream frees under the tag while it is captured, it may have again there in captures."""
    def retire_tag(self, tag: int) -> None:
        """The tag's memory becomes ordinary once the context's work so far is over: its graphs are gone."""
    def begin_use(self, operands: Sequence[tuple[int, int, int, int]], stream: int) -> int:
        """Make (address, offset, nbytes, mode) ranges resident; mode 1 read, 2 write, 3 both. Returns a token."""
    def end_use(self, token: int) -> None: ...
    def expect(self, allocations: Sequence[tuple[Sequence[tuple[int, bool]], bool, bool]]) -> None:
        """Of each of the next allocations: its uses (number from now, whether it overwrites), kept, born on the host."""
    def thrashing(self) -> tuple[int, int, int, int]:
        """Of the last uses: how many, and the bytes they used, moved, and used at least once."""
    def generation(self, address: int) -> int: ...
    def residency(self, address: int) -> tuple[int, int, int, int]:
        """Bytes of a buffer on the device, on the host, between two places and nowhere."""
    def listen(self, listener: Callable[[list[tuple[int, int, str]]], object] | None) -> None:
        """Call with (address, bytes, place) of what moved, from the thread that moved it."""
    def prefetch(self, address: int, stream: int) -> int:
        """Bring a buffer's pages to the device; returns the bytes skipped because others share the page."""
    def evict(self, address: int) -> int:
        """Move a buffer's pages to host memory; returns the bytes skipped because others share the page."""
    def pin(self, address: int) -> None: ...
    def unpin(self, address: int) -> None: ...
    def rebalance(self) -> None: ...
    def tag_id(self, name: str) -> int: ...
    def tag_name(self, tag: int) -> str: ...
    def limit_host(self, tag: int, limit: int | None) -> None: ...
    def pause(self, tag: int, keep: bool = True) -> None: ...
    def resume(self, tag: int) -> None: ...
    def trim(self, keep_bytes: int = 0) -> int:
        """Give cached physical memory back; returns the bytes released."""
    def read(self, address: int, offset: int, into: Any) -> None:
        """Copy contents to a writable host buffer from wherever they are; waits for the uses memx knows of."""
    def size_of(self, address: int) -> int: ...
    def page_bytes(self) -> int: ...
    def is_lazy(self) -> bool: ...
    def copy_in_stream(self) -> int: ...
    def copy_stream(self) -> int:
        """Handle of the stream that memx copies on."""
    def host_mappable(self) -> bool: ...
    def statistics(self) -> dict[str, Any]: ...
    def reset_peak_statistics(self) -> None: ...
    def check(self) -> None:
        """Verify every internal invariant; raises on the first that does not hold."""
    def close(self) -> None: ...
    def drain_events(self) -> list[tuple[str, int, int, int, int, int]]:
        """Operation, address, bytes, stream, tag or other stream, microseconds since the epoch; and forget them."""
    def drain_packed(self) -> bytes:
        """What drain_events returns, as rows of six unsigned 64-bit words; the operation is its number in that order."""
    def mark(self, number: int) -> None:
        """Note an event "mark" with that number as its last word but one, if events are recorded."""
    def recorded_events(self) -> list[tuple[str, int, int, int, int, int]]:
        """The same, and keep them."""
    def record_events(self, on: bool, most: int = 0) -> None:
        """`most`: how many of the latest to keep; 0: all."""
    def flows(self) -> dict[str, Any]:
        """(current, peak, gained, lost) of blocks and bytes, of all and of small and large requests."""
    def blocks(self) -> list[tuple[int, int, int, str, str, int, int]]:
        """Address, bytes, requested bytes, state, place, tag and stream of every block, by address."""
    def free_blocks(self) -> tuple[int, int]:
        """Number of free blocks beside a live one, and of those that wait for several streams."""
    def extent_of(self, address: int) -> tuple[int, int]:
        """Start and requested bytes of the live buffer that covers an address; zeros if there is none."""
    def covers(self, address: int) -> bool: ...
    def device_limit(self) -> int: ...
    def set_device_limit(self, limit: int) -> None: ...
    def can_be_reached_from(self, device: int) -> bool: ...
    def enable_peer(self, device: int) -> None: ...
    def reset_accumulated_statistics(self) -> None: ...
    def use_plans(self, plans: Sequence[tuple[Sequence[tuple[int, int, int]], int]]) -> None:
        """Each: (bytes, offset, stream or -1) of every allocation in order, and where the step that repeats begins."""
    def begin_step(self, plan: int | None = None) -> None: ...
    def plan_statistics(self) -> dict[str, int]: ...
    def stop_plans(self) -> None: ...

class Allocation:
    """One buffer, freed when the last reference goes, without running Python code."""

    def __init__(self, resource: Resource, nbytes: int, stream: int = 0) -> None: ...
    @property
    def address(self) -> int: ...

def driver_loaded() -> bool: ...
def driver_version() -> int: ...
def probe(device: int) -> dict[str, Any]:
    """What the driver can do on a device, tried rather than read off flags."""

def torch_configure(
    device_limit: int, host_limit: int, reuse: str, oversubscribe: bool, page: int, framework: bool
) -> None:
    """What the resources below PyTorch are made with."""

def torch_resource(device: int) -> Resource: ...
def torch_resources() -> dict[int, Resource]: ...
def torch_record_from_birth() -> None:
    """Let the resources below PyTorch that do not exist yet record events from their first on."""

def torch_hooks() -> dict[str, int]:
    """Addresses of the functions for PyTorch's pluggable allocator to call besides, by the name of the hook."""
