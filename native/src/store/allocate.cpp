// Blocks for requests: a hit in the pool, or a range grown and backed.
#include <algorithm>

#include "memx/store.h"

namespace memx {
namespace {

constexpr std::uint64_t kSmallShare = 8;  // of a page

std::uint64_t pages_for(std::uint64_t bytes, std::uint64_t page_bytes) { return (bytes + page_bytes - 1) / page_bytes; }

// What a fresh range must have so that an aligned block fits in it wherever it starts.
std::uint64_t spacious(const Request& request) { return request.bytes + (request.align - kGranularity); }

}  // namespace

Block* Store::allocate(Lock& lock, Request& request) {
  if (config.lazy) return allocate_lazy(lock, request);
  if (is_private(request.tag) && order.may_capture()) {
    const Slot target = order.target(lock, request.slot);
    if (target != request.slot && target != StreamTable::kGraph) request.graph = target;
  }
  if (!expected_.empty()) {
    if (expected_.back()->on_host && request.placement == Placement::kPreferDevice && host_mappable && config.oversubscribe)
      request.placement = Placement::kHost;
    expected_.pop_back();
  }
  if (relocating_) wait_for_relocations(lock);
  const Tier first = request.placement == Placement::kHost ? Tier::kHost : Tier::kDevice;
  const KeyId key = key_for(request, place_for(first));
  Block* block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kReady, request.graph);
  if (block) {
    ++reuse_hits;
  } else {
    lock.pass_gate();
    CUresult result = CUDA_SUCCESS;
    block = find_or_grow(lock, request, first, result);
    if (!block && config.oversubscribe && request.placement == Placement::kPreferDevice && host_mappable) {
      CUresult host_result = CUDA_SUCCESS;
      block = find_or_grow(lock, request, Tier::kHost, host_result);
    }
    if (!block) throw Error(ErrorKind::kOutOfMemory, out_of_memory(request, result), result);
  }
  block = pool.take(block, request.bytes, request.align, request.slot, request.requested);
  block->asked_tag = request.tag;
  if (request.graph != StreamTable::kNone) block->points.add(order.mark(request.graph));
  table.add_live(block->begin, block->end());
  return block;
}

Block* Store::find_or_grow(Lock& lock, const Request& request, Tier tier, CUresult& result) {
  const KeyId key = key_for(request, place_for(tier));
  for (;;) {
    wait_for_relocations(lock);
    collect_dropped();
    // With nothing freed before there is nothing that a capture would have to be left alone by.
    const bool used_before = order.outstanding() || table.idle_bytes(tier) || physical.cached_bytes(tier);
    const bool capturing = used_before && order.capturing(lock, request.slot);
    if (used_before) order.learn(lock, request.slot);
    if (used_before && !capturing && order.poll(lock, true)) pool.tidy();
    if (CUresult sticky = device.sticky()) device.raise(sticky, Call::cuMemCreate, "allocating");
    Block* block = find_ordered(lock, request, key, capturing);
    if (block) {
      ++reuse_hits;
      return block;
    }
    block = grow(lock, request, tier, capturing, result);
    // With no pages to be had, small and large share what there is.
    if (!block && (block = find_ordered(lock, request, other_size(key), capturing))) ++reuse_hits;
    if (block) return block;
    if (CUresult sticky = device.sticky()) device.raise(sticky, Call::cuMemCreate, "allocating");
    PointSet points;
    if (capturing || !blocking_points(lock, request, tier, points)) return nullptr;
    wait(lock, points[0]);
  }
}

// Small requests share pages with their like only, for a page or two more: so a small block that lives long does not stand
// between what large ones leave behind, nor keep that from becoming whole pages again.
KeyId Store::key_for(const Request& request, Place place) const {
  const bool small = request.bytes <= config.page_bytes / kSmallShare;
  return key_of(request.tag, place, small, request.extra && request.extra->source);
}

// A block, held, that work on the stream follows or can be made to follow without anybody waiting for it here.
Block* Store::find_ordered(Lock& lock, const Request& request, KeyId key, bool capturing) {
  Block* block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kOrdered, request.graph);
  if (block && hold_for(lock, block, request.slot)) return block;
  if (capturing || order.mode() != ReuseMode::kMutual) return nullptr;
  block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kAny);
  if (!block) return nullptr;
  pool.hold(block);
  if (order.insert_waits(lock, block->points, request.slot)) return block;
  pool.unhold(block);
  return nullptr;
}

// Takes a block out of its list if work on the stream can be made to follow what it waits for.
bool Store::hold_for(Lock& lock, Block* block, Slot slot) {
  pool.hold(block);
  if (order.make_explicit(lock, block->points, slot)) return true;
  pool.unhold(block);
  return false;
}

// What stands between the request and memory that is free but for work in progress. False: nothing, so that no
// wait would help.
bool Store::blocking_points(Lock& lock, const Request& request, Tier tier, PointSet& out) {
  const KeyId own = key_for(request, place_for(tier));
  for (KeyId key : {own, other_size(own)}) {
    Block* block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kAny);
    if (!block) continue;
    out = block->points;
    order.prune_complete(out);
    if (!out.empty() && order.waitable(lock, out)) return true;
  }
  return idle_points(lock, tier, pages_for(request.bytes, config.page_bytes) * config.page_bytes, out);
}

// The same for that many bytes of pages.
bool Store::idle_points(Lock& lock, Tier tier, std::uint64_t bytes, PointSet& out) {
  if (physical.room_bytes(tier) + table.idle_bytes(tier) < bytes) return false;
  std::vector<PointSet> pending;
  for (Mapping* mapping = table.idle(tier).front(); mapping; mapping = mapping->next) {
    PointSet points;
    if (!pool.free_points(mapping->first * config.page_bytes, mapping->end() * config.page_bytes, points)) continue;
    order.prune_complete(points);
    if (!points.empty()) pending.push_back(std::move(points));
  }
  for (PointSet& points : pending)
    if (order.waitable(lock, points)) {
      out = std::move(points);
      return true;
    }
  return false;
}

Block* Store::grow(Lock& lock, const Request& request, Tier tier, bool capturing, CUresult& result) {
  const std::uint64_t page_bytes = config.page_bytes;
  const KeyId key = key_for(request, place_for(tier));
  Block* tail = pool.tail(key, request.slot, request.graph);
  if (tail && !hold_for(lock, tail, request.slot)) tail = nullptr;
  if (tail && tail->bytes >= spacious(request)) return tail;
  std::uint64_t pages = pages_for(spacious(request) - (tail ? tail->bytes : 0), page_bytes);
  // Waiting or reclaiming cannot make room for this: say so before anything is taken.
  if (physical.room_bytes(tier) + table.idle_bytes(tier) < pages_for(request.bytes, page_bytes) * page_bytes && !tail) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  const std::uint64_t top = pool.top(key);
  std::uint64_t first = top / page_bytes;
  if (!(top && space.claim_at(first, pages))) {
    if (tail) pool.unhold(tail);
    tail = nullptr;
    pages = pages_for(spacious(request), page_bytes);
    std::optional<std::uint64_t> range = space.claim(pages);
    if (!range) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      return nullptr;
    }
    first = *range;
  }
  const std::uint64_t wanted = pages * page_bytes;
  if (tier == Tier::kHost && !host_allows(request.tag, wanted)) {
    if (tail) pool.unhold(tail);
    for (std::uint64_t page = first; page < first + pages; ++page) space.give_back(page, 1);
    result = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  const std::uint64_t cached_before = physical.cached_bytes(tier);
  if (!capturing && cached_before < wanted) reclaim_idle(lock, tier, wanted - cached_before);
  std::vector<Handle> handles;
  result = lock.drive([&] { return physical.acquire(tier, pages, handles, !capturing); });
  if (result == CUDA_SUCCESS) {
    PageTable::Failure failure = table.map(lock, first, handles);
    result = failure.result;
    if (failure) lock.drive([&] { physical.give_back(handles); });
  }
  if (result != CUDA_SUCCESS) {
    for (std::uint64_t page = first; page < first + pages; ++page)
      if (!table.mapping_at(page)) space.give_back(page, 1);
    if (tail) pool.unhold(tail);
    return nullptr;
  }
  if (!tail) return pool.add_range(first * page_bytes, wanted, key);
  pool.extend(tail, wanted);
  return tail;
}

// Unmaps wholly free handles whose work is over, oldest first, into the cache of handles.
std::uint64_t Store::reclaim_idle(Lock& lock, Tier tier, std::uint64_t bytes) {
  struct Range {
    std::uint64_t first, pages;
    KeyId key;
  };
  std::vector<Mapping*> mappings;
  std::vector<Range> ranges;
  std::uint64_t reclaimed = 0;
  for (Mapping* mapping = table.idle(tier).front(); mapping && reclaimed < bytes; mapping = mapping->next) {
    if (!reclaimable(mapping)) continue;
    mappings.push_back(mapping);
    Block* block = config.lazy ? nullptr : pool.at(mapping->first * config.page_bytes);
    ranges.push_back({mapping->first, mapping->pages(), block ? block->key : 0});
    reclaimed += mapping->pages() * config.page_bytes;
  }
  if (mappings.empty()) return 0;
  if (!config.lazy)
    for (const Range& range : ranges) pool.remove_range(range.first * config.page_bytes, (range.first + range.pages) * config.page_bytes);
  table.unmap(lock, mappings);  // leaves those that the driver refuses to unmap
  for (const Range& range : ranges) {
    const bool refused = std::any_of(mappings.begin(), mappings.end(), [&](Mapping* m) { return m->first == range.first; });
    if (refused) reclaimed -= range.pages * config.page_bytes;
    if (config.lazy) continue;
    if (refused)
      pool.put_back(range.first * config.page_bytes, range.pages * config.page_bytes, range.key);
    else
      space.give_back(range.first, range.pages);
  }
  changed_.notify_all();
  return reclaimed;
}

bool Store::reclaimable(const Mapping* mapping) {
  PointSet points = mapping->uses;
  return !mapping->pins && !mapping->busy &&
         pool.free_points(mapping->first * config.page_bytes, mapping->end() * config.page_bytes, points) && order.complete(points);
}

Block* Store::allocate_lazy(Lock& lock, const Request& request) {
  const KeyId key = key_for(request, Place::kLazy);
  Block* block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kReady);
  if (!block) lock.pass_gate();
  if (!block && order.outstanding()) {
    order.learn(lock, request.slot);
    if (!order.capturing(lock, request.slot) && order.poll(lock, true)) pool.tidy();
    block = pool.find(key, request.bytes, request.align, request.slot, Pool::Scan::kOrdered);
    if (block && !hold_for(lock, block, request.slot)) block = nullptr;
  }
  if (block) {
    ++reuse_hits;
  } else {
    block = pool.tail(key, request.slot);
    if (block && !hold_for(lock, block, request.slot)) block = nullptr;
    std::uint64_t pages = pages_for(spacious(request) - std::min(spacious(request), block ? block->bytes : 0), config.page_bytes);
    const std::uint64_t top = pool.top(key);
    if (pages && block && space.claim_at(top / config.page_bytes, pages)) {
      pool.extend(block, pages * config.page_bytes);
    } else if (pages) {
      if (block) pool.unhold(block);
      pages = pages_for(spacious(request), config.page_bytes);
      std::uint64_t first = top / config.page_bytes;
      if (!(top && space.claim_at(first, pages))) {
        std::optional<std::uint64_t> range = space.claim(pages);
        if (!range) throw Error(ErrorKind::kOutOfMemory, out_of_memory(request, CUDA_SUCCESS));
        first = *range;
      }
      block = pool.add_range(first * config.page_bytes, pages * config.page_bytes, key);
    }
  }
  block = pool.take(block, request.bytes, request.align, request.slot, request.requested);
  block->asked_tag = request.tag;
  if (request.extra || !expected_.empty()) {
    Extra& extra = extras_[block];
    if (request.extra) extra = *request.extra;
    if (!expected_.empty()) {
      extra.expected = std::move(expected_.back());
      expected_.pop_back();
    }
    block->known = true;
    note_upcoming(block);
    if (extra.source)
      for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page)
        if (table.mapping_at(page) || table.page(page).transit) extra.unfilled.push_back(page);
  }
  table.add_live(block->begin, block->end());
  return block;
}

std::shared_ptr<Source> Store::release_with_pages(Block* block) {
  const std::uint64_t page_bytes = config.page_bytes;
  const std::uint64_t begin = block->begin, end = block->end();
  std::shared_ptr<Source> source;
  if (block->known) {
    note_upcoming(block, true);
    source = std::move(extras_.at(block).source);
    extras_.erase(block);
    block->known = false;
  }
  while (block->pins) unpin(block);
  table.remove_live(begin, end);
  if (!config.lazy && !block->moved) {
    pool.release(block);
    return source;
  }
  std::vector<Pool::Piece> pieces;
  std::vector<std::uint64_t> left;
  for (std::uint64_t page = begin / page_bytes; page * page_bytes < end;) {
    Mapping* mapping = table.mapping_at(page);
    if (mapping && config.lazy) mapping->uses.merge(block->points);
    Place place = mapping ? place_for(mapping->handle.tier) : Place::kUnbacked;
    const std::uint64_t after = mapping ? mapping->end() : page + 1;
    for (; page < after && page * page_bytes < end; ++page)
      // Whoever has a page in transit says at the end where its free blocks are, and drops its host copy.
      if (!table.page(page).transit && (config.lazy || table.page(page).swap)) left.push_back(page);
    page = after;
    const std::uint64_t stop = std::min(end, page * page_bytes);
    if (!pieces.empty() && pieces.back().place == place)
      pieces.back().end = stop;
    else
      pieces.push_back({stop, place});
  }
  if (config.lazy)
    pool.release(block);
  else
    pool.release_pieces(block, pieces);
  for (std::uint64_t page : left)
    if (pool.live_bytes_in(page * page_bytes, (page + 1) * page_bytes) == 0) {
      drop_swap(page);
      table.page(page).last_use = 0;
      table.page(page).interval = 0;
      table.page(page).ahead = false;
    }
  if (config.lazy) return source;
  std::uint64_t last = begin;
  for (const Pool::Piece& piece : pieces) {
    if (piece.place == Place::kUnbacked) give_up_addresses(last / page_bytes, (piece.end + page_bytes - 1) / page_bytes);
    last = piece.end;
  }
  return source;
}

void Store::make_private(std::uint32_t tag) {
  if (tag >= private_.size()) private_.resize(tag + 1);
  private_[tag] = true;
}

void Store::retire(std::uint32_t tag) {
  if (tag == 0) return;
  if (tag < private_.size()) private_[tag] = false;
  pool.retire(tag, order.mark(StreamTable::kContext));
}

// Addresses that nothing backs and nobody holds go back; what shares a page with a live block stays.
void Store::give_up_addresses(std::uint64_t first, std::uint64_t end) {
  for (std::uint64_t page = first; page < end; ++page) {
    const std::uint64_t from = page * config.page_bytes, to = from + config.page_bytes;
    PointSet unused;
    Block* block = pool.at(from);
    if (!block || table.mapping_at(page) || table.page(page).transit || !pool.free_points(from, to, unused)) continue;
    pool.remove_range(from, to);
    space.give_back(page, 1);
  }
}

}  // namespace memx
