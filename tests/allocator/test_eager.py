"""Eager buffers: born whole on one tier, reused on their stream, moved only when asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memx
from memx import _native

from .conftest import PAGE, give_to
from .device import Kernels

Make = Callable[..., _native.Resource]
BACKING = ("cuMemCreate", "cuMemMap", "cuMemSetAccess")


def calls(resource: _native.Resource) -> dict[str, int]:
    return resource.statistics()["driver_calls"]


def since(resource: _native.Resource, before: dict[str, int]) -> dict[str, int]:
    return {name: n - before.get(name, 0) for name, n in calls(resource).items() if n != before.get(name, 0)}


@pytest.mark.parametrize("pages", [*range(1, 33), 63, 64, 100])
def test_backing_from_nothing_takes_a_quarter_call_a_page(resource: Make, pages: int) -> None:
    r = resource(device=128)
    before = calls(r)
    r.allocate(pages * PAGE)
    made = since(r, before)
    assert sum(made.values()) <= pages / 4 + 7
    assert made["cuMemSetAccess"] == 1
    assert made["cuMemCreate"] == pages // 8 + (pages % 8).bit_count()


def test_a_hit_on_the_same_stream_makes_no_driver_call(resource: Make) -> None:
    r = resource()
    address = r.allocate(3 * PAGE)
    r.free(address)
    before = calls(r)
    assert r.allocate(3 * PAGE) == address
    assert since(r, before) == {}
    assert r.statistics()["reuse_hits"] == 1


def test_neighbours_coalesce_and_split(resource: Make) -> None:
    r = resource()
    addresses = [r.allocate(512) for _ in range(PAGE // 512)]
    assert r.statistics()["reserved_bytes.current"] == PAGE
    assert sorted(addresses) == list(range(min(addresses), min(addresses) + PAGE, 512))
    for address in addresses[::2] + addresses[1::2]:
        r.free(address)
    assert [r.allocate(PAGE // 8) for _ in range(8)] == list(range(min(addresses), min(addresses) + PAGE, PAGE // 8))
    assert r.statistics()["reserved_bytes.peak"] == PAGE


def test_small_blocks_that_live_long_keep_no_page_of_large_ones(resource: Make) -> None:
    r = resource(device=64)
    large = []
    for _ in range(16):
        large.append(r.allocate(PAGE + PAGE // 2))
        r.allocate(512)
    for address in large:
        r.free(address)
    r.trim()
    assert r.statistics()["reserved_bytes.current"] == PAGE


@pytest.mark.parametrize(("first", "second"), [(512, PAGE // 2), (PAGE // 2, 512)])
def test_small_and_large_share_the_last_page(resource: Make, first: int, second: int) -> None:
    r = resource(device=1, host=0)
    assert abs(r.allocate(first) - r.allocate(second)) < PAGE
    assert r.statistics()["reserved_bytes.current"] == PAGE


def test_tails_of_large_buffers_are_shared(resource: Make) -> None:
    r = resource(device=2000)
    for _ in range(100):
        r.allocate(10 * PAGE + 1)
    # 100 x (10 pages + 512 bytes), rounded up once.
    assert r.statistics()["reserved_bytes.peak"] == -(-100 * (10 * PAGE + 512) // PAGE) * PAGE


def test_scattered_free_pages_back_any_range(resource: Make) -> None:
    r = resource(device=8, host=0)
    singles = [r.allocate(PAGE) for _ in range(8)]
    for address in singles[1::2]:
        r.free(address)
    r.allocate(4 * PAGE)
    assert r.statistics()["reserved_bytes.peak"] == 8 * PAGE


def test_cached_large_handles_are_given_back_for_pages(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=0)
    r.free(r.allocate(8 * PAGE))
    kernels.synchronize()
    with_tag = r.allocate(3 * PAGE, tag=r.tag_id("other"))
    assert with_tag
    assert r.statistics()["reserved_bytes.peak"] <= 8 * PAGE


def test_another_streams_memory_waits_for_its_work(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0)
    one, two = kernels.stream(), kernels.stream()
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    give_to(r, kernels, two)  # the wait lets the held stream go
    kernels.destroy(one)
    kernels.destroy(two)


def test_mutual_mode_orders_streams_without_waiting(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0, reuse="mutual")
    one, two = kernels.stream(), kernels.stream()
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    before = calls(r)
    y = r.allocate(2 * PAGE, two)
    made = since(r, before)
    assert y == x
    assert made["cuStreamWaitEvent"] == 1
    assert "cuEventSynchronize" not in made
    kernels.stamp(two, y, 2 * PAGE, 2 << 32)
    memx.sim.release(one)
    r.free(y)
    kernels.synchronize()
    kernels.destroy(one)
    kernels.destroy(two)


def test_excluded_streams_are_neither_made_to_wait_nor_reused_across(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=0, reuse="mutual")
    one, two = kernels.stream(), kernels.stream()
    r.exclude_stream(one)
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    before = calls(r)
    assert r.allocate(2 * PAGE, two) != x
    assert "cuStreamWaitEvent" not in since(r, before)
    memx.sim.release(one)
    kernels.synchronize()
    kernels.destroy(one)
    kernels.destroy(two)


@pytest.mark.parametrize("excluded", ["freeing", "asking"])
def test_the_implicit_order_passes_nothing_to_or_from_an_excluded_stream(
    resource: Make, kernels: Kernels, excluded: str
) -> None:
    r = resource(device=4, host=0)
    blocking = kernels.stream(0)
    r.exclude_stream(0 if excluded == "freeing" else blocking)
    x = r.allocate(2 * PAGE, 0)
    memx.sim.hold(0)
    kernels.stamp(0, x, 2 * PAGE, 1 << 32)
    r.free(x)
    assert r.allocate(2 * PAGE, blocking) != x
    memx.sim.release(0)
    kernels.synchronize()
    kernels.destroy(blocking)


@pytest.mark.parametrize("reuse", ["stream", "default"])
def test_an_edge_passes_memory_on_unless_streams_keep_their_own(resource: Make, kernels: Kernels, reuse: str) -> None:
    r = resource(device=4, host=0, reuse=reuse)
    one, two = kernels.stream(), kernels.stream()
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    kernels.order(two, one)
    r.note_wait(two, one)
    assert (r.allocate(2 * PAGE, two) == x) == (reuse == "default")
    memx.sim.release(one)
    kernels.synchronize()
    kernels.destroy(one)
    kernels.destroy(two)


def test_a_recycled_handle_is_another_stream(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0)
    one = kernels.stream()
    x = r.allocate(2 * PAGE, one)
    memx.sim.hold(one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    r.free(x)
    kernels.destroy(one)
    again = kernels.stream()
    y = r.allocate(2 * PAGE, again)
    kernels.stamp(again, y, 2 * PAGE, 2 << 32)
    memx.sim.release(again)
    kernels.synchronize()
    r.free(y)
    kernels.destroy(again)


def test_a_buffer_outlives_its_stream(resource: Make, kernels: Kernels) -> None:
    r = resource(device=2, host=0)
    one = kernels.stream()
    x = r.allocate(2 * PAGE, one)
    kernels.stamp(one, x, 2 * PAGE, 1 << 32)
    kernels.destroy(one)
    r.free(x)
    y = r.allocate(2 * PAGE, 0)
    kernels.stamp(0, y, 2 * PAGE, 2 << 32)
    r.free(y)


def test_born_on_the_host_and_brought_back(resource: Make, kernels: Kernels) -> None:
    r = resource(device=4, host=8)
    first, second = r.allocate(3 * PAGE), r.allocate(3 * PAGE)
    s = r.statistics()
    assert (s["reserved_bytes.current"], s["host_bytes.current"]) == (3 * PAGE, 3 * PAGE)
    kernels.stamp(0, first, 3 * PAGE, 1 << 32)
    kernels.stamp(0, second, 3 * PAGE, 2 << 32)
    r.free(first)
    kernels.synchronize()
    r.rebalance()
    s = r.statistics()
    assert s["reserved_bytes.current"] <= 4 * PAGE
    assert s["migrated_in_bytes"] == 3 * PAGE
    kernels.verify(0, second, 3 * PAGE, 2 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    r.check()
    r.free(second)
    kernels.synchronize()
    r.trim()
    s = r.statistics()
    assert (s["reserved_bytes.current"], s["host_bytes.current"]) == (0, 0)


def test_evict_skips_pages_that_others_share(resource: Make, kernels: Kernels) -> None:
    r = resource(device=8, host=8)
    size = 3 * PAGE - PAGE // 4  # a handle of two pages, and one that is shared
    wide = r.allocate(size)
    neighbour = r.allocate(PAGE // 4)
    kernels.stamp(0, wide, size, 1 << 32)
    kernels.synchronize()
    assert r.evict(wide) == PAGE - PAGE // 4
    kernels.verify(0, wide, size, 1 << 32)
    kernels.synchronize()
    assert kernels.mismatches == 0
    assert r.statistics()["migrated_out_bytes"] == 2 * PAGE
    r.free(wide)
    r.free(neighbour)
    r.check()


def test_oversubscribe_off_never_uses_the_host(resource: Make) -> None:
    r = resource(device=4, host=8, oversubscribe=False)
    r.allocate(4 * PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="oversubscribe"):
        r.allocate(PAGE)
    assert r.statistics()["host_bytes.peak"] == 0


def test_a_buffer_for_the_device_only_fails_rather_than_spill(resource: Make) -> None:
    r = resource(device=4, host=8)
    r.allocate(4 * PAGE)
    with pytest.raises(memx.OutOfMemoryError, match="placement"):
        r.allocate(PAGE, placement="device")
    assert r.allocate(PAGE)


def test_out_of_memory_says_what_to_do(resource: Make) -> None:
    r = resource(device=4, host=2)
    r.allocate(3 * PAGE)
    with pytest.raises(memx.OutOfMemoryError) as caught:
        r.allocate(5 * PAGE)
    text = str(caught.value)
    for part in (
        "320 KiB",
        "limit 256 KiB",
        "limit 128 KiB",
        "cached",
        "movable",
        "Largest free range",
        "device_limit",
    ):
        assert part in text


def test_what_cannot_fit_is_not_begun(resource: Make) -> None:
    r = resource(device=4, host=0)
    r.allocate(2 * PAGE - 1024)  # the rest of its page would be the start of what comes next
    before = calls(r)
    with pytest.raises(memx.OutOfMemoryError):
        r.allocate(3 * PAGE + 1024)
    assert not {"cuMemCreate", "cuMemRelease"} & since(r, before).keys()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sizes_are_rounded_to_512_and_alignment_holds(data: st.DataObject) -> None:
    memx_resource = _native.Resource(0, 64 * PAGE, 0, page=PAGE)
    requested = allocated = 0
    for _ in range(data.draw(st.integers(1, 12))):
        size = data.draw(st.integers(1, 3 * PAGE))
        align = 1 << data.draw(st.integers(9, 18))
        address = memx_resource.allocate(size, 0, align)
        assert address % align == 0
        requested += size
        allocated += -(-size // 512) * 512
    s = memx_resource.statistics()
    assert s["requested_bytes.current"] == requested
    assert s["allocated_bytes.current"] == allocated
    memx_resource.check()
    memx_resource.close()
