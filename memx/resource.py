"""The memory resource: one device's allocator, as a :class:`cuda.core.MemoryResource`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, TypeAlias, cast, runtime_checkable

from cuda.core import LEGACY_DEFAULT_STREAM, Device, Stream
from cuda.core import Buffer as _CoreBuffer
from cuda.core import MemoryResource as _CoreMemoryResource

from . import _native
from .errors import InvalidStateError, InvalidValueError
from .observations import Residency, Thrashing
from .sizes import parse_size

if TYPE_CHECKING:
    from mmap import mmap

    import numpy as np

    from .expectation import Expectation

__all__ = ["Buffer", "MemoryResource"]

_DEFAULT_HOST_FRACTION = 0.5
_READ, _WRITE, _BOTH = 1, 2, 3


@runtime_checkable
class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...


Refill: TypeAlias = "np.ndarray[Any, Any] | mmap | bytes | bytearray | memoryview | Callable[[memoryview, int], object]"
StreamLike: TypeAlias = "_HasStream | SupportsInt | None"
Region: TypeAlias = "Buffer | tuple[Buffer, int, int]"


def stream_handle(stream: StreamLike) -> int:
    """The handle of anything that stands for a stream: ``__cuda_stream__``, an integer, ``None`` (the legacy one)."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if isinstance(stream, _HasStream):
        return int(stream.__cuda_stream__()[1])
    if hasattr(stream, "__int__"):
        return int(stream)
    raise InvalidValueError(f"not a stream: {stream!r} (pass a stream with __cuda_stream__, a handle, or None)")


class Buffer(_CoreBuffer):
    """Memory of a :class:`MemoryResource`; a :class:`cuda.core.Buffer` that also takes any kind of stream."""

    def close(self, stream: StreamLike = None) -> None:
        """Give the memory back, ordered on `stream` (default: the allocation's)."""
        super().close(None if stream is None else _core_stream(stream))

    @property
    def ipc_descriptor(self) -> Any:
        """Refused: a buffer is many handles, none of them created for export."""
        raise InvalidStateError(
            "this buffer is not exportable to another process: its pages are separate handles that were not created "
            "for export (MemoryResource.is_ipc_enabled says so beforehand); copy it to memory of a resource that is"
        )

    def __reduce__(self) -> Any:
        return self.ipc_descriptor


def _core_stream(stream: StreamLike) -> Stream:
    if isinstance(stream, Stream):
        return stream
    handle = stream_handle(stream)
    return LEGACY_DEFAULT_STREAM if handle in (0, 1) else Stream.from_handle(handle)


class _Resident:
    """Buffers on the device while the block runs; see :meth:`MemoryResource.resident`."""

    def __init__(self, native: _native.Resource, operands: list[tuple[int, int, int, int]], stream: int) -> None:
        self._native = native
        self._operands = operands
        self._stream = stream
        self._token: int | None = None

    def __enter__(self) -> None:
        self._token = self._native.begin_use(self._operands, self._stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._native.end_use(token)


class MemoryResource(_CoreMemoryResource):
    """One device's memory: addresses from one reservation, backed page by page with GPU or host memory.

    Parameters
    ----------
    device : cuda.core.Device or int
    device_limit : size, optional
        Most device memory to hold at any time, cached memory included; default: all that the device has.
    host_limit : size, optional
        Most host memory to hold; default: half of the machine's. 0: none.
    reuse : {"default", "stream", "mutual"}
        Which freed memory a stream may take: its own; also what is ordered or over; also what a wait inserted
        between the streams orders.
    lazy : bool
        False: buffers are usable from birth to free and never move unasked. True: they are usable inside
        :meth:`resident` and may be moved to host memory outside it.
    oversubscribe : bool
        False: host memory is never used.
    page : size, optional
        Bytes of the smallest handle, a power of two times the driver's granularity; default: that granularity.
    eviction : {"cost", "lru", "clock"}
        What gives way when a lazy resource's device memory is full: what is expected to be used again furthest away (as
        :meth:`expect` says, else as its last interval lets guess), by the bytes that moving it takes; what was used
        longest ago; what was not used since the clock's hand last passed.
    low_water : size
        Lazy resources only. Device memory that is to be had without waiting for a copy: where less is free, what gives
        way next is copied to the host beforehand, while the work of a `resident` block runs, and stays on the device
        until its memory is needed. 0: copied when it is needed.
    look_ahead : size
        Lazy resources only. Most device memory for what is brought there before the `resident` block that uses it: as
        :meth:`expect` says, or as it comes round again and again in the same order. 0: brought when it is used.

    Raises
    ------
    DriverError
        There is no driver, or it is too old; the message names :func:`memx.simulate`.
    InvalidValueError
        A limit smaller than a page, a page that the driver cannot have, an unknown mode.
    """

    def __init__(
        self,
        device: Device | int = 0,
        device_limit: int | str | None = None,
        host_limit: int | str | None = None,
        reuse: str = "default",
        lazy: bool = False,
        oversubscribe: bool = True,
        page: int | str | None = None,
        eviction: str = "cost",
        low_water: int | str = 0,
        look_ahead: int | str = 0,
    ) -> None:
        self._device_id = device if isinstance(device, int) else int(device.device_id)
        device_bytes, host_bytes, page_bytes = in_bytes(self._device_id, device_limit, host_limit, page)
        self.native = _native.Resource(
            self._device_id,
            device_bytes,
            host_bytes,
            reuse,
            lazy,
            oversubscribe,
            page_bytes,
            eviction=eviction,
            low_water=_ahead(low_water, self._device_id, page_bytes, "low_water"),
            look_ahead=_ahead(look_ahead, self._device_id, page_bytes, "look_ahead"),
        )
        self._wrap()

    @classmethod
    def _around(cls, native: _native.Resource, device_id: int) -> MemoryResource:
        """The public face of a resource that somebody else owns."""
        made = cls.__new__(cls)
        made._device_id = device_id
        made.native = native
        made._wrap()
        return made

    def _wrap(self) -> None:
        self._tag = threading.local()
        # cuda.core wants a stream for the free at the allocation already; the core knows the allocation's, so
        # this one, which nobody else has, stands for "not said".
        self._unsaid_handle = self.native.copy_stream()
        self._unsaid = Stream.from_handle(self._unsaid_handle)

    def allocate(
        self,
        nbytes: int | str,
        *,
        stream: StreamLike = None,
        align: int | str | None = None,
        placement: str = "prefer_device",
        refill: Refill | None = None,
        priority: int = 0,
    ) -> Buffer:
        """A new buffer.

        Parameters
        ----------
        nbytes : size
            0 is allowed and takes no memory.
        stream : stream, int or None
            The stream that the buffer is used on first and, unless :meth:`Buffer.close` says otherwise, freed on.
        align : size, optional
            Alignment of the address, a power of two; at least 512 bytes always.
        placement : {"prefer_device", "device", "host"}
            Where an eager buffer may be born: on the device or else on the host; on the device only; on the host.
        refill : array or callable, optional
            Lazy resources only. Where the contents come from whenever pages come to the device: anything with a buffer
            of at least `nbytes` (a NumPy array, a memory-mapped file), or a function of (memoryview, offset) that fills
            the view with the bytes from `offset` on, called from any thread. Such a buffer is read only; when others
            need its memory it is dropped, never copied.
        priority : int
            Lazy resources only. Pages of lower priority give way before those of higher; 0 is the usual one.

        Raises
        ------
        OutOfMemoryError
            No tier has room, even if all that is free were reclaimed.
        InvalidValueError
            A negative or overflowing size; a source too small, or for an eager buffer.
        """
        size = parse_size(nbytes, self.native.page_bytes()) if isinstance(nbytes, str) else nbytes
        alignment = 0 if align is None else parse_size(align, self.native.page_bytes())
        handle = stream_handle(stream)
        address = self.native.allocate(
            size, handle, alignment, placement, getattr(self._tag, "id", 0), refill, priority
        )
        return cast(Buffer, Buffer._init(address, size, self, stream=self._unsaid))

    def deallocate(self, ptr: SupportsInt, size: int, *, stream: StreamLike = None) -> None:  # noqa: ARG002
        """Take a buffer back; called by :meth:`Buffer.close` and by the collector."""
        handle = None if stream is None else stream_handle(stream)
        self.native.free(int(ptr), None if handle == self._unsaid_handle else handle)

    def resident(
        self,
        *both: Region,
        reads: Iterable[Region] = (),
        writes: Iterable[Region] = (),
        stream: StreamLike = None,
    ) -> _Resident:
        """A context in which buffers are on the device, all of them or none, while work is queued on `stream`.

        Parameters
        ----------
        *both : Buffer or (Buffer, offset, nbytes)
            Read and written.
        reads, writes : iterables of the same
            What is only read; what is written whole, so that its old contents need not be brought in.
        stream : stream, int or None
            Where the work is queued.

        Raises
        ------
        OutOfMemoryError
            The operands do not fit the device together, or nothing else can give way.
        """
        operands: list[tuple[int, int, int, int]] = []
        for regions, mode in ((both, _BOTH), (reads, _READ), (writes, _WRITE)):
            for region in regions:
                buffer, offset, nbytes = region if isinstance(region, tuple) else (region, 0, region.size)
                operands.append((int(buffer.handle), offset, nbytes, mode))
        return _Resident(self.native, operands, stream_handle(stream))

    def record_stream(self, buf: Buffer, stream: StreamLike) -> None:
        """`buf` is used on `stream` until its free, by work queued before or after this call."""
        self.native.record_stream(int(buf.handle), stream_handle(stream))

    def note_wait(self, stream: StreamLike, on: StreamLike) -> None:
        """Tell memx that later work on `stream` follows all work so far on `on`, by the caller's own doing."""
        self.native.note_wait(stream_handle(stream), stream_handle(on))

    def exclude_stream(self, stream: StreamLike) -> None:
        """Never make `stream` wait for another, nor another for it, and never reuse across it."""
        self.native.exclude_stream(stream_handle(stream))

    def prefetch(self, buf: Buffer, stream: StreamLike = None) -> int:
        """Bring a buffer's pages to the device; returns the bytes left because others share their page."""
        return self.native.prefetch(int(buf.handle), stream_handle(stream))

    def evict(self, buf: Buffer) -> int:
        """Move a buffer's pages to host memory; returns the bytes left because others share their page."""
        return self.native.evict(int(buf.handle))

    def pin(self, buf: Buffer) -> None:
        """Keep a buffer's pages where they are; calls nest."""
        self.native.pin(int(buf.handle))

    def unpin(self, buf: Buffer) -> None:
        """Undo one :meth:`pin`."""
        self.native.unpin(int(buf.handle))

    def rebalance(self) -> None:
        """A safe point: eager buffers on the host that were used lately come to the device, others make room for them.

        Those used last (as `resident` says) come first, then those never said to be used, as far as there is room;
        pages on the device that were used longer ago than one that comes go to the host for it. Pinned buffers stay.

        The caller promises that nothing is queued until this returns. It waits for the whole context.
        """
        self.native.rebalance()

    def expect(self, allocations: Sequence[Expectation]) -> None:
        """Tell how the next allocations will be used, from a recorded step or a trace; replaces what was told before.

        What is used again furthest away gives way first then, and contents that nothing is to read again are dropped
        instead of copied; reading them all the same raises :class:`InvalidStateError`. See :func:`memx.expectations`.
        """
        self.native.expect([(one.uses, one.kept, one.on_host) for one in allocations])

    def thrashing(self) -> Thrashing | None:
        """Whether the last uses moved at least half as many bytes as they named, and do not fit the device together."""
        uses, used, moved, working_set = self.native.thrashing()
        limit = self.native.device_limit()
        if working_set <= limit or 2 * moved < used:
            return None
        return Thrashing(uses, used, moved, working_set, limit)

    def residency(self, buf: Buffer) -> Residency:
        """Where the bytes of a buffer are at this moment."""
        return Residency(*self.native.residency(int(buf.handle)))

    def generation(self, buf: Buffer) -> int:
        """A number that grows whenever another page, or none, comes to be behind one of a buffer's addresses.

        While it stands, whatever was learnt of those pages (a registration, an exported handle) still holds;
        :meth:`pin` makes it stand.
        """
        return self.native.generation(int(buf.handle))

    def on_move(self, listener: Callable[[list[tuple[int, int, str]]], object] | None) -> None:
        """Call `listener` with (address, bytes, place) of each part of a buffer that moved; None: nobody.

        The place is "device", "host" (mapped there) or "unbacked". The thread that moved it calls, once it is done,
        with no lock held; what the listener raises goes to :func:`sys.unraisablehook`.
        """
        self.native.listen(listener)

    @contextmanager
    def tag(self, name: str) -> Iterator[None]:
        """Allocations of this thread inside the block carry the tag `name`."""
        before = getattr(self._tag, "id", 0)
        self._tag.id = self.native.tag_id(name)
        try:
            yield
        finally:
            self._tag.id = before

    def limit_host(self, tag: str, nbytes: int | str | None) -> None:
        """At most so much host memory for the buffers of a tag, within `host_limit` for all; None: no limit of its own.

        What is there already stays. Where the limit would be passed, others give way, or there is an
        :class:`OutOfMemoryError`.
        """
        size = parse_size(nbytes, self.native.page_bytes()) if isinstance(nbytes, str) else nbytes
        self.native.limit_host(self.native.tag_id(tag), size)

    def pause(self, tag: str, keep: bool = True) -> None:
        """Free the device memory of all buffers with a tag; their addresses stay, and with `keep` their contents.

        Buffers that are paused must not be used before :meth:`resume`. The freed memory is cached: :meth:`trim`
        gives it back. Pausing twice does nothing more.
        """
        self.native.pause(self.native.tag_id(tag), keep)

    def resume(self, tag: str) -> None:
        """Back a paused tag's buffers again, on the device or, if it is full, on the host; all or none."""
        self.native.resume(self.native.tag_id(tag))

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give cached physical memory back to the driver; returns the bytes given back."""
        return self.native.trim(parse_size(keep_bytes, self.native.page_bytes()))

    def statistics(self) -> dict[str, Any]:
        """Counters, in bytes unless the name says otherwise.

        ``requested_bytes``, ``allocated_bytes`` (rounded to 512), ``active_bytes`` (allocated, or freed and still
        in use on several streams), ``inactive_bytes`` (free inside partly used handles), ``reserved_bytes`` (device
        memory held) and ``host_bytes``, each with ``.current`` and ``.peak``; ``migrated_in_bytes``,
        ``migrated_out_bytes``, ``prefetched_bytes`` (of those in, before they were used), ``prefetched_used_bytes`` (of
        those, used since), ``allocations``, ``frees``, ``reuse_hits``; ``driver_calls`` by function.
        """
        return self.native.statistics()

    def reset_peak_statistics(self) -> None:
        """Set every peak to the current value."""
        self.native.reset_peak_statistics()

    def enable_peer(self, device: Device | int) -> None:
        """Let another device reach all buffers, those that exist and those to come.

        Raises
        ------
        DriverError
            The devices are not connected so.
        """
        self.native.enable_peer(device if isinstance(device, int) else int(device.device_id))

    @property
    def device_id(self) -> int:
        """Ordinal of the device."""
        return self._device_id

    @property
    def is_lazy(self) -> bool:
        """Whether buffers are usable inside :meth:`resident` only."""
        return self.native.is_lazy()

    @property
    def is_ipc_enabled(self) -> bool:
        """Always false: buffers cannot be shared with other processes."""
        return False

    @property
    def is_device_accessible(self) -> bool:
        """Always true."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Always false: only some pages are, and not for long."""
        return False


def in_bytes(
    device_id: int, device_limit: int | str | None, host_limit: int | str | None, page: int | str | None
) -> tuple[int, int, int]:
    """Device limit, host limit and page of a resource in bytes; 0 where the core chooses."""
    page_bytes = 0
    if page is not None and (page_bytes := parse_size(page)) <= 0:
        raise InvalidValueError(f"page {page!r} is not a positive size")
    granularity = page_bytes or None
    if granularity is None and any(isinstance(s, str) and s.endswith("p") for s in (device_limit, host_limit)):
        granularity = int(_native.probe(device_id)["page_bytes"])
    return (
        0 if device_limit is None else _limit(device_limit, granularity, "device_limit", least=1),
        _half_of_host() if host_limit is None else _limit(host_limit, granularity, "host_limit", least=0),
        page_bytes,
    )


def _limit(text: int | str, page: int | None, what: str, least: int) -> int:
    size = parse_size(text, page)
    if size < least:
        raise InvalidValueError(f"{what} {text!r} must be at least {least} bytes")
    return size


def _ahead(text: int | str, device_id: int, page_bytes: int, what: str) -> int:
    in_pages = isinstance(text, str) and text.endswith("p") and not page_bytes
    return _limit(text, int(_native.probe(device_id)["page_bytes"]) if in_pages else page_bytes or None, what, least=0)


def _half_of_host() -> int:
    import os

    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _DEFAULT_HOST_FRACTION)
