// Explicit moves, pauses and trims.
#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "memx/store.h"

namespace memx {

// While one exists, no eager memory is handed out: the free parts of a page that moves stay free.
struct Store::Relocation {
  explicit Relocation(Store& store) : store(store) { ++store.relocating_; }
  ~Relocation() {
    --store.relocating_;
    store.changed_.notify_all();
  }
  Store& store;
};

void Store::wait_for_relocations(Lock& lock) {
  while (relocating_) wait_for_change(lock, "pages that another thread is moving");
}

// Waits for the work queued on a mapping, that of freed blocks too; it may be gone or another when this returns.
// What a move of the mapping has to come after.
PointSet Store::unfinished_uses(const Mapping* mapping) {
  PointSet points = mapping->uses;
  if (!config.lazy) {
    points = pool.pending_points(mapping->first * config.page_bytes, mapping->end() * config.page_bytes);
    // Eager pages move at their address and with the caller's promise: a graph finds them again.
    points.remove_if([&](const Point& point) { return order.is_graph(point.slot()); });
  }
  order.prune_complete(points);
  return points;
}

void Store::wait_for_uses(Lock& lock, std::uint64_t first_page) {
  for (;;) {
    const Mapping* mapping = table.mapping_at(first_page);
    if (!mapping) return;
    const PointSet points = unfinished_uses(mapping);
    if (points.empty()) return;
    wait(lock, points[0]);
  }
}

// Those of these mappings that may go to the host, nothing using any of them at one and the same moment: while one is waited
// for, others may be used anew, or copied from ahead of need.
std::vector<Mapping*> Store::wait_until_idle(Lock& lock, const std::vector<std::uint64_t>& firsts) {
  for (;;) {
    for (std::uint64_t first : firsts) wait_for_uses(lock, first);
    std::vector<Mapping*> idle;
    for (std::uint64_t first : firsts) {
      Mapping* mapping = table.mapping_at(first);
      if (mapping && mapping->first == first && !mapping->pins && !mapping->busy && !mapping->stuck) idle.push_back(mapping);
    }
    if (std::all_of(idle.begin(), idle.end(), [&](const Mapping* mapping) { return unfinished_uses(mapping).empty(); })) return idle;
  }
}

// First pages of the block's mappings in a tier on which nothing else is alive.
std::vector<std::uint64_t> Store::owned_mappings(Block* block, Tier tier, std::uint64_t& skipped) {
  const std::uint64_t page_bytes = config.page_bytes;
  std::vector<std::uint64_t> owned;
  skipped = 0;
  for (std::uint64_t page = block->begin / page_bytes; page * page_bytes < block->end();) {
    Mapping* mapping = table.mapping_at(page);
    if (!mapping) {
      ++page;
      continue;
    }
    page = mapping->end();
    if (mapping->handle.tier != tier) continue;
    const std::uint64_t mine = std::min(block->end(), mapping->end() * page_bytes) - std::max(block->begin, mapping->first * page_bytes);
    if (mapping->live_bytes > mine || mapping->pins || mapping->busy)
      skipped += mine;
    else
      owned.push_back(mapping->first);
  }
  return owned;
}

void Store::set_transit(std::uint64_t first, std::uint64_t pages, bool on) {
  for (std::uint64_t page = first; page < first + pages; ++page) table.page(page).transit = on;
}

// Moves one eager mapping to another tier at the same address: into new handles mapped elsewhere, then exchanged.
PageTable::Failure Store::move(Lock& lock, std::uint64_t first, Tier to) {
  const std::uint64_t page_bytes = config.page_bytes;
  wait_for_uses(lock, first);
  Mapping* mapping = table.mapping_at(first);
  if (!mapping || mapping->first != first || mapping->busy || mapping->handle.tier == to) return {};  // another thread's by now
  const std::uint64_t pages = mapping->pages(), bytes = pages * page_bytes;
  const std::uint64_t cached_before = physical.cached_bytes(to);
  if (to == Tier::kHost && !host_allows(tag_at(first), bytes)) return {CUDA_ERROR_OUT_OF_MEMORY, Call::cuMemCreate};
  mapping->busy = true;
  auto stay = [&](PageTable::Failure why) {
    mapping->busy = false;
    changed_.notify_all();
    return why;
  };
  if (cached_before < bytes) reclaim_idle(lock, to, bytes - cached_before);
  std::vector<Handle> handles;
  PageTable::Failure failure{lock.drive([&] { return physical.acquire(to, pages, handles); }), Call::cuMemCreate};
  if (failure) return stay(failure);
  std::optional<std::uint64_t> scratch = space.claim(pages);
  if (!scratch) {
    stay({});
    lock.drive([&] { physical.give_back(handles); });
    return {CUDA_ERROR_OUT_OF_MEMORY, Call::cuMemAddressReserve};
  }
  auto release_scratch = [&] {
    for (std::uint64_t page = *scratch; page < *scratch + pages; ++page)
      if (!table.mapping_at(page)) space.give_back(page, 1);
  };
  failure = table.map(lock, *scratch, handles);
  if (failure) {
    lock.drive([&] { physical.give_back(handles); });
    release_scratch();
    return stay(failure);
  }
  for (std::uint64_t page = *scratch; page < *scratch + pages; page = table.mapping_at(page)->end())
    table.mapping_at(page)->busy = true;
  lock.unlock();
  {
    ContextScope current(device);
    failure = {MEMX_CALL(device, cuMemcpyAsync, table.address(*scratch), table.address(first), std::size_t(bytes), stream_),
               Call::cuMemcpyAsync};
    finish_copies(stream_, failure.result, failure.call);
  }
  lock.lock();
  for (std::uint64_t page = *scratch; page < *scratch + pages;) {
    Mapping* copy = table.mapping_at(page);
    page = copy->end();
    Handle handle;
    PageTable::Failure failed = table.detach(lock, copy, handle);
    if (failed) {
      table.strand(copy);
      failure = failure ? failure : failed;
    } else {
      handles.push_back(handle);
    }
  }
  release_scratch();
  auto give_up = [&] {
    for (const Handle& handle : handles) physical.put(handle);
    lock.drive([&] { physical.trim(to, cached_before); });
  };
  Handle old;
  set_transit(first, pages, true);
  if (!failure) failure = table.detach(lock, mapping, old);
  if (failure) {
    set_transit(first, pages, false);
    give_up();
    return stay(failure);
  }
  failure = table.map(lock, first, handles);
  if (failure) {
    const bool restored = restore(lock, first, old);
    give_up();
    changed_.notify_all();
    if (!restored)
      throw Error(ErrorKind::kDriver,
                  "contents lost: " + std::string(call_name(failure.call)) + " failed with " + device.error_name(failure.result) +
                      " while moving " + format_bytes(bytes) + ", and again while putting them back; the buffers there must be freed",
                  failure.result, call_name(failure.call));
    return failure;
  }
  for (std::uint64_t page = first; page < first + pages;) {
    Mapping* moved = table.mapping_at(page);
    table.set_live(moved, pool.live_bytes_in(moved->first * page_bytes, moved->end() * page_bytes));
    page = moved->end();
  }
  set_transit(first, pages, false);
  changed_.notify_all();
  physical.put(old);
  pool.change_place(first * page_bytes, (first + pages) * page_bytes, to == Tier::kDevice ? Place::kDevice : Place::kHost);
  (to == Tier::kDevice ? migrated_in_bytes : migrated_out_bytes) += bytes;
  note_moved(first, pages, to == Tier::kDevice ? Place::kDevice : Place::kHost);
  return {};
}

// Puts a handle back where it was taken from. False: it cannot be mapped, and the blocks there have lost their contents.
bool Store::restore(Lock& lock, std::uint64_t first, Handle handle) {
  constexpr int kAttempts = 3;
  const std::uint64_t begin = first * config.page_bytes, end = begin + ((config.page_bytes) << handle.order);
  std::vector<Handle> handles{handle};
  for (int attempt = 0; attempt < kAttempts && !handles.empty(); ++attempt) {
    table.unstick(lock);
    if (!table.map(lock, first, handles)) {
      table.set_live(table.mapping_at(first), pool.live_bytes_in(begin, end));
      set_transit(first, 1ull << handle.order, false);
      for (Block* block = pool.at(begin); block && block->begin < end;) {  // what was freed meanwhile
        const std::uint64_t next = block->end();
        if (!block->live) pool.change_place(std::max(begin, block->begin), std::min(end, next), place_for(handle.tier));
        block = next < end ? pool.at(next) : nullptr;
      }
      return true;
    }
  }
  set_transit(first, 1ull << handle.order, false);
  for (const Handle& unused : handles) physical.put(unused);
  pool.change_place(begin, end, Place::kUnbacked);
  for (Block* block = pool.at(begin); block && block->begin < end; block = block->next)
    if (block->live) block->lost = true;
  return false;
}

std::uint64_t Store::prefetch(Lock& lock, Block* block, Slot slot) {
  if (config.lazy) {
    end_use(lock, begin_use(lock, {{block, block->begin, block->end(), kRead}}, slot, false));
    return 0;
  }
  if (block->pins) throw Error(ErrorKind::kInvalidState, "this buffer is pinned: unpin it before moving it");
  drain(lock);
  const Relocation relocation(*this);
  std::uint64_t skipped = 0;
  for (std::uint64_t first : owned_mappings(block, Tier::kHost, skipped)) {
    PageTable::Failure failure = move(lock, first, Tier::kDevice);
    if (failure.result == CUDA_ERROR_OUT_OF_MEMORY && !device.sticky()) {
      Request request;
      request.requested = request.bytes = block->bytes;
      throw Error(ErrorKind::kOutOfMemory, out_of_memory(request, failure.result), failure.result);
    }
    if (failure) device.raise(failure.result, failure.call, "bringing a buffer to the device");
  }
  return skipped;
}

std::uint64_t Store::evict(Lock& lock, Block* block) {
  if (block->pins) throw Error(ErrorKind::kInvalidState, "this buffer is pinned: unpin it before evicting it");
  if (planned(block)) throw Error(ErrorKind::kInvalidState, "this buffer is where a plan placed it, and stays there: end the play-back first");
  std::uint64_t skipped = 0;
  if (config.lazy) {
    swap_out(lock, wait_until_idle(lock, owned_mappings(block, Tier::kDevice, skipped)), true);
    return skipped;
  }
  if (!host_mappable)
    throw Error(ErrorKind::kInvalidState, "an eager buffer cannot be evicted here: host memory cannot be mapped for the device");
  drain(lock);
  const Relocation relocation(*this);
  for (std::uint64_t first : owned_mappings(block, Tier::kDevice, skipped)) {
    PageTable::Failure failure = move(lock, first, Tier::kHost);
    if (failure.result == CUDA_ERROR_OUT_OF_MEMORY && !device.sticky())
      throw Error(ErrorKind::kOutOfMemory, "out of memory: no room to evict a buffer to the host (host_limit " +
                                               format_bytes(config.host_limit) + ", used " + format_bytes(physical.host_bytes()) + ")");
    if (failure) device.raise(failure.result, failure.call, "moving a buffer to the host");
  }
  return skipped;
}

void Store::pin(Block* block) {
  ++block->pins;
  for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page) ++table.page(page).pins;
}

void Store::unpin(Block* block) {
  if (!block->pins) throw Error(ErrorKind::kInvalidState, "this buffer is not pinned");
  --block->pins;
  for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page) --table.page(page).pins;
}

// Brings host pages to the device, those used last first, while there is room or something used longer ago can make it.
void Store::rebalance(Lock& lock) {
  if (config.lazy) return;
  drain(lock);
  const Relocation relocation(*this);
  struct Candidate {
    std::uint64_t last, first, bytes;
  };
  auto movable = [&](const Mapping* mapping, Tier tier) {
    return mapping && mapping->handle.tier == tier && !mapping->pins && !mapping->busy && !mapping->stuck && !mapping->kept && !pinned(mapping);
  };
  auto still = [&](const Candidate& one, Tier tier) {
    const Mapping* mapping = table.mapping_at(one.first);
    return movable(mapping, tier) && mapping->first == one.first && mapping->live_bytes;
  };
  auto list = [&](Tier tier) {
    std::vector<Candidate> out;
    for (Mapping* mapping = table.live(tier).back(); mapping; mapping = mapping->prev) {
      if (!movable(mapping, tier)) continue;
      std::uint64_t last = 0;
      for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) last = std::max(last, table.page(page).last_use);
      out.push_back({last, mapping->first, mapping->pages() * config.page_bytes});
    }
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.last > b.last; });
    return out;
  };
  auto room = [&] { return physical.room_bytes(Tier::kDevice) + table.idle_bytes(Tier::kDevice); };
  std::vector<Candidate> cold = list(Tier::kDevice);
  for (const Candidate& hot : list(Tier::kHost)) {
    if (!still(hot, Tier::kHost)) continue;
    while (room() < hot.bytes && !cold.empty() && cold.back().last < hot.last) {
      const Candidate victim = cold.back();
      cold.pop_back();
      if (!still(victim, Tier::kDevice)) continue;
      PageTable::Failure failure = move(lock, victim.first, Tier::kHost);
      if (failure.result == CUDA_ERROR_OUT_OF_MEMORY && !device.sticky()) break;  // the host is full
      if (failure) device.raise(failure.result, failure.call, "moving pages to the host");
    }
    if (room() < hot.bytes || !still(hot, Tier::kHost)) continue;
    PageTable::Failure failure = move(lock, hot.first, Tier::kDevice);
    if (failure.result == CUDA_ERROR_OUT_OF_MEMORY && !device.sticky()) return;
    if (failure) device.raise(failure.result, failure.call, "bringing pages to the device");
  }
}

std::vector<Block*> Store::tagged(std::uint32_t tag) {
  std::vector<Block*> blocks;
  pool.for_each([&](Block& block) {
    if (block.live && block.asked_tag == tag) blocks.push_back(&block);
  });
  std::sort(blocks.begin(), blocks.end(), [](Block* a, Block* b) { return a->begin < b->begin; });
  return blocks;
}

void Store::pause(Lock& lock, std::uint32_t tag, bool keep) {
  std::optional<Relocation> relocation;
  if (!config.lazy) {
    drain(lock);
    relocation.emplace(*this);
  }
  std::vector<std::uint64_t> firsts;
  for (Block* block : tagged(tag)) {
    if (planned(block))
      throw Error(ErrorKind::kInvalidState, "a buffer with this tag is where a plan placed it, and stays there: end the play-back first");
    for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end();) {
      Mapping* mapping = table.mapping_at(page);
      page = mapping ? mapping->end() : page + 1;
      // Host pages hold their contents where pausing would put them.
      if (!mapping || mapping->stuck || (keep && mapping->handle.tier == Tier::kHost)) continue;
      if (mapping->pins) throw Error(ErrorKind::kInvalidState, "a buffer with this tag is in use: pause it after its `resident` has ended");
      if (pinned(mapping)) throw Error(ErrorKind::kInvalidState, "a buffer with this tag is pinned: unpin it before pausing the tag");
      if (firsts.empty() || firsts.back() != mapping->first) firsts.push_back(mapping->first);
    }
  }
  swap_out(lock, wait_until_idle(lock, firsts), keep, true);
  if (!keep)
    for (Block* block : tagged(tag))
      for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page) drop_swap(page);
}

std::vector<Run> Store::unbacked(std::uint32_t tag) {
  std::vector<Run> runs;
  for (Block* block : tagged(tag))
    for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page) {
      if (table.mapping_at(page)) continue;
      if (!runs.empty() && page < runs.back().end()) continue;
      append(runs, page);
    }
  return runs;
}

void Store::resume(Lock& lock, std::uint32_t tag) {
  if (config.lazy) return;
  for (;;) {
    const std::vector<Run> runs = unbacked(tag);
    if (runs.empty()) return;
    const std::uint64_t bytes = pages_of(runs) * config.page_bytes;
    collect_dropped();
    if (order.poll(lock, true)) pool.tidy();
    Tier tier = Tier::kDevice;
    if (physical.cached_bytes(tier) < bytes) reclaim_idle(lock, tier, bytes - physical.cached_bytes(tier));
    if (physical.room_bytes(tier) < bytes) {
      PointSet points;
      if (idle_points(lock, tier, bytes, points)) {
        wait(lock, points[0]);
        continue;
      }
      if (host_mappable) tier = Tier::kHost;
      if (tier == Tier::kHost && !host_allows(tag, bytes)) refuse_host(tag, bytes);
    }
    if (physical.room_bytes(tier) < bytes) {
      Request request;
      request.requested = request.bytes = bytes;
      throw Error(ErrorKind::kOutOfMemory, out_of_memory(request, CUDA_SUCCESS));
    }
    std::vector<Mapping*> made;
    swap_in(lock, runs, {}, tier, made);
    for (Mapping* mapping : made)
      pool.change_place(mapping->first * config.page_bytes, mapping->end() * config.page_bytes,
                        tier == Tier::kDevice ? Place::kDevice : Place::kHost);
    let_go(made);
    return;
  }
}

std::uint64_t Store::trim(Lock& lock, std::uint64_t keep_bytes) {
  wait_for_relocations(lock);
  table.unstick(lock);
  if (order.poll(lock, true)) pool.tidy();
  collect_dropped();
  if (Event* event = order.event_for(lock, order.latest(StreamTable::kContext))) order.let_go(event);
  std::uint64_t released = 0;
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    if (order.poll(lock, true)) pool.tidy();
    const std::uint64_t cached = physical.cached_bytes(tier);
    if (cached + table.idle_bytes(tier) <= keep_bytes) continue;
    std::uint64_t excess = cached + table.idle_bytes(tier) - keep_bytes;
    if (excess > cached) reclaim_idle(lock, tier, excess - cached);
    const std::uint64_t left = physical.cached_bytes(tier);
    released += lock.drive([&] { return physical.trim(tier, left > excess ? left - excess : 0); });
  }
  if (const std::uint64_t cached = physical.cached_bytes(Tier::kPinned); clean_bytes_ && cached + clean_bytes_ > keep_bytes)
    shed_clean(physical.room_bytes(Tier::kPinned) + cached + clean_bytes_ - keep_bytes);
  return released + lock.drive([&] { return physical.trim(Tier::kPinned, keep_bytes); });
}

void Store::read(Lock& lock, Block* block, std::uint64_t begin, std::uint64_t end, void* into) {
  std::vector<Slot> slots{block->slot};
  if (block->used_on) slots.insert(slots.end(), block->used_on->begin(), block->used_on->end());
  const std::uint64_t id = block->begin;
  for (Slot slot : slots) wait(lock, order.now(lock, slot));
  block = pool.starting_at(id);
  if (!block || !block->live) throw Error(ErrorKind::kInvalidState, "the buffer was freed while it was being read");
  if (block->lost) throw Error(ErrorKind::kInvalidState, "this buffer's contents were lost when a move failed and could not be undone");
  if (block->known && extras_.at(block).let_go) throw Error(ErrorKind::kInvalidState, kLetGo);
  const std::shared_ptr<Source> source = block->known ? extras_.at(block).source : nullptr;
  const std::vector<std::uint64_t> unfilled = source ? extras_.at(block).unfilled : std::vector<std::uint64_t>{};
  const std::uint64_t requested = block->requested;
  auto* out = static_cast<std::byte*>(into);
  std::vector<Mapping*> held;
  std::vector<Copy> copies;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> from_source;
  try {
    for (;;) {
      std::vector<std::uint64_t> pages;
      for (std::uint64_t page = begin / config.page_bytes; page * config.page_bytes < end; ++page) pages.push_back(page);
      std::vector<Run> runs;
      if (!hold_pages(pages, held, runs, lock)) continue;
      const auto arriving = std::find_if(pages.begin(), pages.end(), [&](std::uint64_t page) {
        const Point& copying = table.page(page).copying;
        return table.mapping_at(page) && copying.slot() == in_slot_ && !order.complete(copying);
      });
      if (arriving == pages.end()) break;
      let_go(held);
      wait(lock, table.page(*arriving).copying);
    }
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t page = at / config.page_bytes;
      Mapping* mapping = table.mapping_at(page);
      const bool filled = !table.page(page).hollow && !(source && std::binary_search(unfilled.begin(), unfilled.end(), page));
      std::uint64_t last = page + 1;
      while (filled && mapping && !source && last < mapping->end() && !table.page(last).hollow) ++last;
      const std::uint64_t stop = std::min(end, last * config.page_bytes);
      if (mapping && filled) {
        copies.push_back({space.base() + at, reinterpret_cast<std::uint64_t>(out + (at - begin)), stop - at, false});
      } else if (const std::uint64_t swap = table.page(page).swap) {
        const std::uint64_t offset = at % config.page_bytes;
        lock.drive([&] { std::memcpy(out + (at - begin), reinterpret_cast<const std::byte*>(swap) + offset, stop - at); });
      } else {
        std::memset(out + (at - begin), 0, stop - at);
        if (source && at < id + requested) from_source.push_back({at, std::min(stop, id + requested)});
      }
      at = stop;
    }
    copy(lock, copies);
    if (!from_source.empty()) {
      Moving moving(*this);
      lock.unlock();
      std::exception_ptr thrown;
      try {
        for (const auto& [from, to] : from_source) source->fill(out + (from - begin), from - id, to - from);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) std::rethrow_exception(thrown);
    }
  } catch (...) {
    let_go(held);
    throw;
  }
  let_go(held);
}

}  // namespace memx
