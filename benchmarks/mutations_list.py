"""The mutations that ``benchmarks/mutations.py`` tries: lines of the core, and what to make of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTATIONS", "Mutation"]


class Mutation(NamedTuple):
    """A change to the core.

    Attributes
    ----------
    name : str
    what : str
        What is wrong then, in words.
    edits : tuple of (file below ``native``, text that occurs there once, text to put in its place)
    tests : tuple of str
        The tests to ask, where others would fail for one of several edits alone; else all.
    """

    name: str
    what: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...] = ()


ORDER, STREAMS = "src/order/order.cpp", "src/order/streams.cpp"
POOL, STORE = "src/pool/pool.cpp", "src/store/"
RESOURCE, PHYSICAL, MAPPING = "src/resource/resource.cpp", "src/physical/physical.cpp", "src/mapping/mapping.cpp"


def one(name: str, what: str, file: str, right: str, wrong: str) -> Mutation:
    return Mutation(name, what, ((file, right, wrong),))


NOT_EXPLICIT = (
    STREAMS,
    "  if (!implicit) return true;\n",
    "  return true;\n",
)

ORDERING = (
    one(
        "skip-recorded-streams",
        "a free does not wait for recorded streams",
        RESOURCE,
        "      if (slot != freed_on) points.add(order.now(lock, slot));",
        "      if (slot == freed_on) points.add(order.now(lock, slot));",
    ),
    one(
        "skip-allocation-stream",
        "a free on another stream does not wait for the allocation's",
        RESOURCE,
        "  points.add(order.now(lock, block->slot));\n  if (freed_on != block->slot) points",
        "  points",
    ),
    one(
        "skip-freeing-stream",
        "a free on another stream does not wait for that one",
        RESOURCE,
        "  if (freed_on != block->slot) points.add(order.now(lock, freed_on));",
        "",
    ),
    one(
        "nonblocking-as-blocking",
        "non-blocking streams are taken for implicitly ordered",
        STREAMS,
        "  stream.blocking = !(flags & CU_STREAM_NON_BLOCKING);",
        "  stream.blocking = true;",
    ),
    one(
        "implicit-order-without-action",
        "memory passes by the implicit order, and nothing is queued that makes it hold for others",
        *NOT_EXPLICIT,
    ),
    Mutation(
        "implicit-order-passed-on",
        "the implicit order is passed on: no action is queued, and the block forgets what it waited for",
        (
            NOT_EXPLICIT,
            (
                "include/memx/order.h",
                "points.remove_if([&](const Point& point) { return ordered(point, slot); });",
                "  points.remove_if([&](const Point& point) { return usable([&] { PointSet one; one.add(point); "
                "return one; }(), slot); });",
            ),
        ),
        ("tests/cases",),
    ),
    Mutation(
        "forget-inherited-points",
        "a free forgets the points that the block had inherited (and no action covers them)",
        (
            NOT_EXPLICIT,
            (RESOURCE, "  order.prune_complete(points);\n  points.add(", "  points.clear();\n  points.add("),
        ),
        ("tests/cases",),
    ),
    one(
        "edge-into-the-future",
        "a wait is taken to order work queued after it too",
        ORDER,
        "  raise_to(on, other.issued);",
        "  raise_to(on, other.issued + 1000);",
    ),
    one(
        "edge-reversed",
        "a wait is taken to order the other way",
        RESOURCE,
        "  store_->order.note_wait(later, earlier);",
        "  store_->order.note_wait(earlier, later);",
    ),
    one(
        "complete-too-early",
        "the point after the last completed one counts as completed",
        "include/memx/order.h",
        "return point.number() <= streams_[point.slot()].completed; }",
        "return point.number() <= streams_[point.slot()].completed + 1; }",
    ),
    one(
        "identity-by-handle",
        "a destroyed stream is known by its handle, whoever has that now",
        STREAMS,
        "  if (lock.drive([&] { return is_live(stream); })) {\n    learn",
        "  if (true) {\n    learn",
    ),
    one(
        "per-thread-is-one-stream",
        "every thread's default stream is taken for the same",
        STREAMS,
        "CUDA_SUCCESS && id == stream.id;",
        "CUDA_SUCCESS && (id == stream.id || stream.per_thread);",
    ),
    one(
        "ignore-exclusion",
        "excluded streams are reused across by the implicit order",
        ORDER,
        " || streams_[point.slot()].excluded || streams_[slot].excluded) return false;",
        ") return false;",
    ),
    one(
        "mutual-without-wait",
        "mutual mode remembers the edge and queues no wait",
        STREAMS,
        "      return MEMX_CALL(device_, cuStreamWaitEvent, handle, event->handle, 0u);",
        "      return (void)handle, CUDA_SUCCESS;",
    ),
    one(
        "stream-mode-uses-edges",
        "mode `stream` reuses by edges as well",
        ORDER,
        "point.number() <= edge->second && mode_ != ReuseMode::kStream;",
        "point.number() <= edge->second;",
    ),
    one(
        "forget-completion-by-waiting",
        "completion learnt by waiting is not followed up in the pool",
        ORDER,
        "void StreamTable::settle(const Point& point) { complete_up_to(point.slot(), point.number()); }",
        "void StreamTable::settle(const Point& point) { streams_[point.slot()].completed = point.number(); }",
    ),
)

FRAMEWORKS = (
    one(
        "late-point-on-a-recycled-handle",
        "a framework's stream that is gone all the same is known by its handle",
        STREAMS,
        "  if (result == CUDA_SUCCESS && slot > kGraph && late) gone = ",
        "  if (false) gone = ",
    ),
    one(
        "private-pool-anywhere",
        "what a capture freed is reused outside captures",
        ORDER,
        "    if (graph != kNone && is_graph(point.slot()) && streams_[point.slot()].twin == slot) continue;",
        "    if (is_graph(point.slot()) && streams_[point.slot()].twin == slot) continue;",
    ),
    one(
        "private-pool-across-streams",
        "what one stream freed in a capture another gets in it",
        ORDER,
        "is_graph(point.slot()) && streams_[point.slot()].twin == slot) continue;",
        "is_graph(point.slot())) continue;",
    ),
    one(
        "graph-memory-without-a-mark",
        "memory that was allocated in a capture is ordinary once it is freed outside",
        STORE + "allocate.cpp",
        "  if (request.graph != StreamTable::kNone) block->points.add(order.mark(request.graph));\n",
        "",
    ),
    one(
        "retired-pool-at-once",
        "a retired pool's memory does not wait for the last replay",
        POOL,
        "    if (block.points.size() < before) block.points.add(over);",
        "    (void)before, (void)over;",
    ),
    one(
        "graph-never-gone",
        "that a graph is gone is not noticed",
        ORDER,
        "    bury(slot);\n",
        "",
    ),
    one(
        "asks-on-every-free",
        "whether a framework's stream captures is asked at every free",
        "include/memx/order.h",
        "return !framework_ || announced_; }",
        "return true; }",
    ),
)

CAPTURES = (
    one(
        "capture-point-as-usual",
        "memory freed on a capturing stream is reused as if the graph ran once",
        STREAMS,
        "        if (!is_capturing(handle)) return false;",
        "        if (true) return false;",
    ),
    one(
        "query-breaks-capture",
        "events are asked about outside the relaxed capture mode",
        STREAMS,
        "      ContextScope current(device_);\n      return MEMX_CALL(device_, cuEventQuery, first",
        "      return MEMX_CALL(device_, cuEventQuery, first",
    ),
    one(
        "wait-breaks-capture",
        "the thread that waits for an event is not in the relaxed capture mode",
        STORE + "store.cpp",
        "        exchange(&mode);\n",
        "        (void)exchange, (void)mode;\n",
    ),
    one(
        "context-event-breaks-capture",
        "an event of the whole context is recorded during a capture",
        STREAMS,
        "  if (result == CUDA_SUCCESS && context && any_capturing(lock)) result =",
        "  if (false) result =",
    ),
    one(
        "legacy-query-breaks-capture",
        "the legacy stream is asked about while a blocking stream captures",
        STREAMS,
        "  if (capturing(lock, slot)) return;  // a query would break it",
        "  // a query would break it",
    ),
    one(
        "release-in-capture",
        "handles are unmapped for a request of a capturing stream",
        STORE + "allocate.cpp",
        "  if (!capturing && cached_before < wanted)",
        "  if (cached_before < wanted)",
    ),
    one(
        "wait-against-a-capture",
        "pages whose work a capture keeps from being waited for are waited for instead of left alone",
        STORE + "residency.cpp",
        "      if (order.waitable(lock, points)) {",
        "      if (true) {",
    ),
)

PAGES = (
    one(
        "unmap-early",
        "pages are unmapped before the work that used them is over",
        STORE + "allocate.cpp",
        " points) && order.complete(points);",
        " points);",
    ),
    one(
        "swap-early",
        "pages are copied out before the work that used them is over",
        STORE + "residency.cpp",
        "    for (const Mapping* mapping : victims) points.merge(mapping->uses);\n",
        "",
    ),
    one(
        "forget-uses",
        "the end of a use leaves no mark on its pages",
        STORE + "residency.cpp",
        "      mapping->uses.add(point);",
        "      (void)point;",
    ),
    one(
        "no-pin-during-use",
        "pages in use can be chosen to give way",
        STORE + "outlook.cpp",
        "if (mapping->pins || mapping->busy || pinned(mapping)) return false;",
        "if (mapping->busy || pinned(mapping)) return false;",
    ),
    one(
        "ignore-user-pins",
        "pinned buffers can be chosen to give way",
        STORE + "residency.cpp",
        "    if (table.page(page).pins) return true;",
        "    if (false) return true;",
    ),
    one(
        "hottest-gives-way",
        "what was used last gives way first",
        STORE + "eviction.cpp",
        "    return static_cast<double>(now - std::min(now, outlook.last));",
        "    return static_cast<double>(outlook.last);",
    ),
    one(
        "next-use-ignored",
        "what is told of the next use is not looked at",
        STORE + "outlook.cpp",
        "      if (const std::uint64_t next = next_use(block))\n",
        "      if (const std::uint64_t next = 0)\n",
    ),
    one(
        "keep-stale-copy",
        "the host copy of a page outlives work that writes to the page",
        STORE + "residency.cpp",
        "page * page_bytes < operand.end; ++page) drop_swap(page);",
        "page * page_bytes < operand.end; ++page) (void)page;",
    ),
    one(
        "no-late-fill",
        "a buffer born on a page that is there already is not filled",
        STORE + "residency.cpp",
        "if (late.empty()) break;",
        "break;",
    ),
    one(
        "late-fill-at-once",
        "such a buffer is filled before the work queued there is over",
        STORE + "refill.cpp",
        "    if (points.empty()) continue;\n    let_go(held);",
        "    if (!points.empty() || points.empty()) continue;\n    let_go(held);",
    ),
    one(
        "copies-over-slabs",
        "host pages of two allocations are copied as if they were one",
        STORE + "swap.cpp",
        "  return slab != slabs_.end() && slab == slab_of(b);",
        "  return slab != slabs_.end() || slab_of(b) == slab;",
    ),
    one(
        "slab-freed-early",
        "pinned pages go back when the first of their handle is free",
        STORE + "swap.cpp",
        "    if (--slab->second.used) return;",
        "    --slab->second.used;",
    ),
    one(
        "dropped-unsaid",
        "contents that nobody was to read are read without an error",
        STORE + "swap.cpp",
        "        if (block->known) extras_.at(block).let_go = true;",
        "        (void)block;",
    ),
    one(
        "lose-contents",
        "pages give way without being copied",
        STORE + "swap.cpp",
        "  for (std::size_t i = 0; i < pages.size(); ++i) add_copy(copies, pages[i], slots[i], false);\n",
        "",
    ),
    one(
        "partly-written-as-whole",
        "a page written in part is not brought in",
        STORE + "residency.cpp",
        "operand.end >= (page + 1) * page_bytes,\n",
        "true,\n",
    ),
    one(
        "writes-beside-the-copy-out",
        "work that writes a page does not follow the copy of it to the host",
        STORE + "ahead.cpp",
        "(written[i] || copying.slot() == in_slot_)",
        "copying.slot() == in_slot_",
    ),
    one(
        "use-before-the-copy-in",
        "work does not follow the copies of what it uses to the device",
        STORE + "ahead.cpp",
        "(written[i] || copying.slot() == in_slot_)",
        "written[i]",
    ),
    one(
        "pinned-page-back-under-a-copy",
        "a pinned page is given back while a copy from or to it is under way",
        STORE + "swap.cpp",
        "    if (!order.complete(one.copying)) return false;\n",
        "",
    ),
    one(
        "victims-under-a-copy",
        "pages are unmapped while they are copied ahead of need",
        STORE + "ahead.cpp",
        "      if (!order.complete(copying)) mapping->uses.add(copying);\n",
        "",
    ),
    one(
        "sooner-dropped-for-later",
        "what is used next is dropped for what is used after it",
        STORE + "ahead.cpp",
        "used->second <= position) return false;",
        "used->second > position) return false;",
    ),
    one(
        "keep-swap-after-restore",
        "an eager page that was brought back keeps its host copy",
        STORE + "swap.cpp",
        "if ((arrived && !config.lazy) || !live_in_page(page)) drop_swap(page);",
        "if (!live_in_page(page)) drop_swap(page);",
    ),
    one(
        "drop-shared-swap",
        "freeing one buffer drops the host page that another shares",
        STORE + "allocate.cpp",
        "    if (pool.live_bytes_in(page * page_bytes, (page + 1) * page_bytes) == 0) {",
        "    {",
    ),
    one(
        "no-drain-before-moving",
        "an eager buffer is evicted while work on it may be queued",
        STORE + "moves.cpp",
        "  drain(lock);\n  const Relocation relocation(*this);\n"
        "  for (std::uint64_t first : owned_mappings(block, Tier::kDevice",
        "  const Relocation relocation(*this);\n  for (std::uint64_t first : owned_mappings(block, Tier::kDevice",
    ),
    one(
        "no-drain-before-pausing",
        "eager buffers are paused while work on them may be queued",
        STORE + "moves.cpp",
        "    drain(lock);\n    relocation.emplace(*this);",
        "    relocation.emplace(*this);",
    ),
    one(
        "allocate-on-pages-that-move",
        "other threads get memory on pages that an eviction is copying",
        STORE + "moves.cpp",
        "  while (relocating_) wait_for_change",
        "  while (false) wait_for_change",
    ),
    one(
        "move-shared-pages",
        "an eviction takes pages that other buffers share",
        STORE + "moves.cpp",
        "    if (mapping->live_bytes > mine || mapping->pins || mapping->busy)",
        "    if (mapping->pins || mapping->busy)",
    ),
    one(
        "read-without-waiting",
        "a read does not wait for the streams that write the buffer",
        STORE + "moves.cpp",
        "  for (Slot slot : slots) wait(lock, order.now(lock, slot));",
        "  (void)slots;",
    ),
    one(
        "read-keeps-pages",
        "a read that fails leaves its pages in use",
        STORE + "moves.cpp",
        "      if (thrown) std::rethrow_exception(thrown);\n    }\n  } catch (...) {\n    let_go(held);",
        "      if (thrown) std::rethrow_exception(thrown);\n    }\n  } catch (...) {",
    ),
)

TRANSACTIONS = (
    one(
        "forget-handles-of-a-failed-map",
        "handles that could not be mapped are not given back",
        STORE + "allocate.cpp",
        "    if (failure) lock.drive([&] { physical.give_back(handles); });",
        "    if (failure) handles.clear();",
    ),
    one(
        "forget-to-unmap-in-a-rollback",
        "what a failed transaction had mapped stays mapped",
        MAPPING,
        "undone.push_back(unmap_pages(made[i].get()) == CUDA_SUCCESS);",
        "undone.push_back(true);",
    ),
    one(
        "forget-addresses-of-a-failed-request",
        "addresses claimed for a failed request are not given back",
        STORE + "allocate.cpp",
        "      if (!table.mapping_at(page)) space.give_back(page, 1);\n    if (tail) pool.unhold(tail);",
        "      (void)page;\n    if (tail) pool.unhold(tail);",
    ),
    one(
        "cache-what-a-failed-request-created",
        "handles created for a failed request are kept",
        PHYSICAL,
        "    if (!handle.fresh || release(handle) != CUDA_SUCCESS) put(handle);",
        "    put(handle);",
    ),
    one(
        "no-restore-after-a-failed-move",
        "a move that fails at its last step does not put the old handle back",
        STORE + "moves.cpp",
        "    const bool restored = restore(lock, first, old);",
        "    const bool restored = (physical.put(old), false);",
    ),
    one(
        "forget-busy-after-a-failed-copy",
        "pages stay marked as being copied when the copy fails",
        STORE + "swap.cpp",
        "  } catch (...) {\n    release_victims();\n",
        "  } catch (...) {\n",
    ),
)

LIMITS = (
    one(
        "no-room-check",
        "handles are created for a request larger than the room, and given back",
        PHYSICAL,
        "  if (room_bytes(tier) / page_bytes_ < pages) return CUDA_ERROR_OUT_OF_MEMORY;",
        "",
    ),
    one(
        "no-limit-check",
        "handles are created beyond the limit",
        PHYSICAL,
        "    if (held() + bytes > limit(tier)) {\n      result = CUDA_ERROR_OUT_OF_MEMORY;",
        "    if (false) {\n      result = CUDA_ERROR_OUT_OF_MEMORY;",
    ),
    one(
        "host-limits-apart",
        "mapped and pinned host pages each get the whole host limit",
        PHYSICAL,
        "    auto held = [&] { return tier == Tier::kDevice ? held_bytes(tier) : host_bytes(); };",
        "    auto held = [&] { return held_bytes(tier); };",
    ),
    one(
        "ignore-host-ok",
        "requests that may not use host memory get it",
        STORE + "allocate.cpp",
        "config.oversubscribe && request.placement == Placement::kPreferDevice && host_mappable) {",
        "config.oversubscribe && host_mappable) {",
    ),
)

BOOKS = (
    one(
        "miscount-allocated",
        "a free takes the requested size off the allocated bytes",
        RESOURCE,
        "  demands_.remove(block->requested, block->bytes);",
        "  demands_.remove(block->requested, block->requested);",
    ),
    one(
        "miscount-migrated",
        "a page brought in is counted once too often",
        STORE + "swap.cpp",
        "  migrated_in_bytes += arrival.copied;",
        "  migrated_in_bytes += arrival.copied + config.page_bytes;",
    ),
    one(
        "peak-reset-clears-current",
        "a reset of the peaks clears the current values",
        "include/memx/counters.h",
        "  void reset_peak() { peak = current; }",
        "  void reset_peak() { peak = current = 0; }",
    ),
    one(
        "merge-tiers",
        "free blocks of different tags or tiers are merged",
        POOL,
        " || other->held || other->key != block->key) return false;",
        " || other->held) return false;",
    ),
    one(
        "tail-unchecked",
        "the end of a range is grown by a stream that it is not ordered for",
        POOL,
        "  return order_.usable(block->points, slot, graph) ? block : nullptr;",
        "  return block;",
    ),
    one(
        "find-unchecked",
        "other streams' free blocks are taken unasked",
        POOL,
        "search(list, kOrderedProbes, scan == Scan::kOrdered));",
        "search(list, kOrderedProbes, false));",
    ),
    one(
        "merge-loses-points",
        "a merged block forgets what its upper half waited for",
        POOL,
        "  block->points.merge(next->points);\n",
        "",
    ),
    one(
        "merge-keeps-completed-points",
        "completed points that come in by a merge stay",
        POOL,
        "    order_.prune_complete(block->points);  // what was absorbed may carry completed points\n",
        "",
    ),
    one(
        "no-alignment",
        "alignment is ignored",
        POOL,
        "  return (base_ + block->begin + align - 1) / align * align - base_;",
        "  return (void)align, block->begin;",
    ),
    one(
        "free-anything",
        "an address that was freed can be freed again",
        RESOURCE,
        "  if (block && block->live && !block->leaving) return block;",
        "  if (block) return block;",
    ),
    one(
        "use-after-fork",
        "a child process uses its parent's resource",
        RESOURCE,
        "  if (forked())\n    throw",
        "  if (false)\n    throw",
    ),
    one(
        "illegal-address-is-not-sticky",
        "an illegal access does not make the context unusable",
        "src/driver/driver.cpp",
        "    case CUDA_ERROR_ILLEGAL_ADDRESS:\n",
        "",
    ),
)

PLAYBACK_TESTS = ("tests/plan/test_plan_playback.py",)
PLANS = (
    Mutation(
        "planned-place-unchecked",
        "a plan is trusted: its place is given whether or not its last work is ordered before",
        (
            (
                STORE + "arena.cpp",
                "    if (!waits_for(points) || !(mutual || order.usable(points, request.slot))) return nullptr;",
                "    if (!waits_for(points)) return nullptr;",
            ),
            (STORE + "arena.cpp", "  if (!follows) {", "  if (!follows && mutual) {"),
        ),
        PLAYBACK_TESTS,
    ),
    Mutation(
        "planned-place-taken",
        "a planned place is given while something is alive in it",
        ((POOL, "    if (block->live || block->held) return false;\n    out.merge", "    out.merge"),),
        PLAYBACK_TESTS,
    ),
    Mutation(
        "arena-is-idle-memory",
        "an arena's pages are given back when nothing is alive on them",
        (("src/mapping/mapping.cpp", "    mapping->kept = kept;", "    mapping->kept = kept && mapping->kept;"),),
        PLAYBACK_TESTS,
    ),
)

MUTATIONS: tuple[Mutation, ...] = (
    *ORDERING,
    *FRAMEWORKS,
    *CAPTURES,
    *PAGES,
    *TRANSACTIONS,
    *LIMITS,
    *BOOKS,
    *PLANS,
)
