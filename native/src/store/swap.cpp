// Contents between device pages and pinned host pages.
#include <algorithm>

#include "memx/store.h"

namespace memx {

std::uint64_t Store::live_in_page(std::uint64_t page) {
  return pool.live_bytes_in(page * config.page_bytes, (page + 1) * config.page_bytes);
}

void Store::drop_swap(std::uint64_t page) {
  Page& entry = table.page(page);
  if (!entry.swap) return;
  if (entry.mapping && !entry.mapping->stuck) clean_bytes_ -= config.page_bytes;
  dropped_.push_back({entry.swap, entry.copying});
  entry.swap = 0;
  entry.hollow = false;
  swapped_[entry.swap_tag] -= config.page_bytes;
}

// Pinned pages go back past the gate only: somebody who passed it may still read from one.
void Store::collect_dropped() {
  std::erase_if(dropped_, [&](const Dropped& one) {
    if (!order.complete(one.copying)) return false;
    put_pinned(one.slot);
    return true;
  });
}

std::vector<std::uint64_t> Store::cut(const std::vector<Handle>& handles) {
  std::vector<std::uint64_t> pages;
  for (const Handle& handle : handles) {
    const std::uint64_t count = 1ull << handle.order;
    if (count > 1) slabs_[handle.value] = {handle, count};
    for (std::uint64_t i = 0; i < count; ++i) pages.push_back(handle.value + i * config.page_bytes);
  }
  return pages;
}

std::map<std::uint64_t, Store::Slab>::iterator Store::slab_of(std::uint64_t address) {
  auto slab = slabs_.upper_bound(address);
  if (slab == slabs_.begin()) return slabs_.end();
  --slab;
  return address < slab->first + (config.page_bytes << slab->second.handle.order) ? slab : slabs_.end();
}

// One copy may not reach over two allocations, though they lie side by side.
bool Store::in_one_slab(std::uint64_t a, std::uint64_t b) {
  const auto slab = slab_of(a);
  return slab != slabs_.end() && slab == slab_of(b);
}

// A handle is free again when the last of its pages is.
void Store::put_pinned(std::uint64_t page) {
  if (const auto slab = slab_of(page); slab != slabs_.end()) {
    if (--slab->second.used) return;
    physical.put(slab->second.handle);
    slabs_.erase(slab);
    return;
  }
  Handle handle;
  handle.value = page;
  handle.tier = Tier::kPinned;
  physical.put(handle);
}

void Store::shed_clean(std::uint64_t bytes) {
  for (Mapping* mapping = table.live(Tier::kDevice).back(); mapping && clean_bytes_; mapping = mapping->prev) {
    if (physical.room_bytes(Tier::kPinned) >= bytes) return;
    if (mapping->busy) continue;
    for (std::uint64_t page = mapping->first; page < mapping->end(); ++page)
      if (!table.page(page).hollow) drop_swap(page);
    collect_dropped();
  }
}

void Store::make_host_room(Lock& lock, std::uint64_t bytes) {
  auto enough = [&] { return physical.room_bytes(Tier::kPinned) >= bytes; };
  collect_dropped();
  shed_clean(bytes);
  if (enough()) return;
  if (order.poll(lock, true)) collect_dropped();
  shed_clean(bytes);
  if (enough()) return;
  for (const auto& [stream, slot] : {std::pair(stream_, out_slot_), std::pair(in_stream_, in_slot_)}) {
    const Point last = order.latest(slot);
    if (order.complete(last)) continue;
    CUresult result = CUDA_SUCCESS;
    Call call;
    finish_copies(lock, stream, result, call);
    if (result == CUDA_SUCCESS) order.settle(last);
  }
  collect_dropped();
  shed_clean(bytes);
}

// Pages under a copy cannot be given back, so a wait that fails is tried again.
void Store::finish_copies(CUstream stream, CUresult& queued, Call& call) {
  ContextScope current(device);
  CUresult over = CUDA_SUCCESS;
  for (int attempt = 0; attempt < 3; ++attempt) {
    over = MEMX_CALL(device, cuStreamSynchronize, stream);
    if (over == CUDA_SUCCESS || device.sticky()) break;
  }
  for (CUresult state = CUDA_ERROR_NOT_READY; over != CUDA_SUCCESS && !device.sticky() && state == CUDA_ERROR_NOT_READY;) {
    state = MEMX_CALL(device, cuStreamQuery, stream);
    if (state == CUDA_SUCCESS) over = state;
    std::this_thread::yield();
  }
  if (queued == CUDA_SUCCESS && over != CUDA_SUCCESS) {
    queued = over;
    call = Call::cuStreamSynchronize;
  }
}

void Store::finish_copies(Lock& lock, CUstream stream, CUresult& queued, Call& call) {
  Moving moving(*this);
  lock.unlock();
  finish_copies(stream, queued, call);
  lock.lock();
}

Point Store::copies_queued(Lock& lock, Slot slot) {
  const Point point = order.now(lock, slot);
  if (point.slot() == slot) return point;
  CUresult result = CUDA_SUCCESS;
  Call call;
  finish_copies(lock, order.handle(slot), result, call);
  return {};
}

Point Store::queue_copies(Lock& lock, const std::vector<Copy>& copies, Slot slot, CUresult& result, Call& call) {
  Moving moving(*this);
  const CUstream stream = order.handle(slot);
  result = lock.drive([&] { return queue(copies, stream, call); });
  if (result == CUDA_SUCCESS) return copies_queued(lock, slot);
  finish_copies(lock, stream, result, call);
  return {};
}

void Store::add_copy(std::vector<Copy>& copies, std::uint64_t page, std::uint64_t slot, bool in) {
  if (!copies.empty() && copies.back().device + copies.back().bytes == table.address(page) &&
      copies.back().host + copies.back().bytes == slot && in_one_slab(slot - 1, slot))
    copies.back().bytes += config.page_bytes;
  else
    copies.push_back({table.address(page), slot, config.page_bytes, in});
}

CUresult Store::queue(const std::vector<Copy>& copies, CUstream stream, Call& call) {
  ContextScope current(device);
  for (const Copy& c : copies) {
    call = c.in ? Call::cuMemcpyHtoDAsync : Call::cuMemcpyDtoHAsync;
    void* host = reinterpret_cast<void*>(c.host);
    const CUresult result = c.in ? MEMX_CALL(device, cuMemcpyHtoDAsync, c.device, host, std::size_t(c.bytes), stream)
                                 : MEMX_CALL(device, cuMemcpyDtoHAsync, host, c.device, std::size_t(c.bytes), stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void Store::copy(Lock& lock, const std::vector<Copy>& copies) {
  if (copies.empty()) return;
  CUresult result;
  Call call = Call::cuStreamSynchronize;
  {
    Moving moving(*this);
    lock.unlock();
    result = queue(copies, stream_, call);
    finish_copies(stream_, result, call);
    lock.lock();
  }
  if (result != CUDA_SUCCESS) device.raise(result, call, "copying pages between device and host");
}

void Store::swap_out(Lock& lock, std::vector<Mapping*> victims, bool keep, bool together) {
  if (victims.empty()) return;
  collect_dropped();
  std::sort(victims.begin(), victims.end(), [](const Mapping* a, const Mapping* b) { return a->first < b->first; });
  const std::uint64_t cached_before = physical.cached_bytes(Tier::kPinned);
  std::vector<std::uint64_t> pages, dead;
  if (keep)
    for (const Mapping* mapping : victims)
      for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
        const Fate what = fate(page);
        if (what == Fate::kDirty) pages.push_back(page);
        if (what == Fate::kDead) dead.push_back(page);
      }
  if (!host_limits_.empty()) {
    std::unordered_map<std::uint32_t, std::uint64_t> more;
    for (std::uint64_t page : pages) more[tag_at(page)] += config.page_bytes;
    for (const auto& [tag, bytes] : more)
      if (!host_allows(tag, bytes)) refuse_host(tag, bytes);
  }
  for (Mapping* mapping : victims) mapping->busy = true;
  make_host_room(lock, pages.size() * config.page_bytes);
  std::vector<Handle> handles;
  auto release_victims = [&] {
    for (Mapping* mapping : victims) mapping->busy = false;
    changed_.notify_all();
  };
  CUresult result = lock.drive([&] { return physical.acquire(Tier::kPinned, pages.size(), handles, true, together); });
  if (result != CUDA_SUCCESS) release_victims();
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    throw Error(ErrorKind::kOutOfMemory,
                "out of memory: moving " + format_bytes(pages.size() * config.page_bytes) +
                    " to the host needs more than its room of " + format_bytes(physical.room_bytes(Tier::kPinned)) +
                    " (host_limit " + format_bytes(config.host_limit) + "): raise host_limit or free buffers",
                result);
  if (result != CUDA_SUCCESS) device.raise(result, Call::cuMemHostAlloc, "allocating host memory for pages");
  std::vector<std::uint64_t> slots = cut(handles);
  auto return_unused = [&](const std::vector<std::uint64_t>& unused) {
    for (std::uint64_t slot : unused) put_pinned(slot);
    lock.drive([&] { physical.trim(Tier::kPinned, cached_before); });
  };
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < pages.size(); ++i) add_copy(copies, pages[i], slots[i], false);
  try {
    copy(lock, copies);
  } catch (...) {
    release_victims();
    return_unused(slots);
    throw;
  }
  struct Range {
    std::uint64_t first, end;
  };
  std::vector<Range> ranges;
  for (const Mapping* mapping : victims) ranges.push_back({mapping->first, mapping->end()});
  const auto started = PartCosts::Clock::now();
  const PageTable::Failure failure = table.unmap(lock, victims);  // leaves those that the driver refuses to unmap
  std::uint64_t unmapped = 0;
  for (const Range& range : ranges) unmapped += range.end - range.first;
  costs_.add_unmapping(unmapped, PartCosts::Clock::now() - started);
  std::size_t next = 0;
  std::vector<std::uint64_t> unused;
  for (const Range& range : ranges) {
    const bool failed = table.mapping_at(range.first) != nullptr;
    for (std::uint64_t page = range.first; page < range.end && !failed; ++page)
      if (table.page(page).swap) clean_bytes_ -= config.page_bytes;
    if (!failed && !config.lazy)
      pool.change_place(range.first * config.page_bytes, range.end * config.page_bytes, Place::kUnbacked);
    for (; next < pages.size() && pages[next] < range.end; ++next) {
      // Freed while it was copied: nobody's contents.
      if (failed || !live_in_page(pages[next])) {
        unused.push_back(slots[next]);
        continue;
      }
      put_swap(pages[next], slots[next]);
      migrated_out_bytes += config.page_bytes;
    }
    if (failed) continue;
    note_moved(range.first, range.end - range.first, Place::kUnbacked);
    if (!config.lazy) give_up_addresses(range.first, range.end);
  }
  for (std::uint64_t page : dead)
    if (!table.mapping_at(page))
      each_live(page * config.page_bytes, (page + 1) * config.page_bytes, [&](Block* block) {
        if (block->known) extras_.at(block).let_go = true;
      });
  changed_.notify_all();
  return_unused(unused);
  if (failure) device.raise(failure.result, failure.call, "unmapping pages that were copied to the host");
}

void Store::settle_arrival(const Arrival& arrival, bool arrived) {
  for (const Run& run : arrival.runs) {
    set_transit(run.first, run.pages, false);
    for (std::uint64_t page = run.first; page < run.end(); ++page) {
      if (!table.page(page).swap) continue;
      if (arrived) clean_bytes_ += config.page_bytes;
      // An eager page may be written at any time, without a word to us.
      if ((arrived && !config.lazy) || !live_in_page(page)) drop_swap(page);
    }
  }
  changed_.notify_all();
}

void Store::undo_arrival(Lock& lock, Arrival& arrival) {
  std::vector<Mapping*> held = arrival.made;
  let_go(held);
  for (Mapping* mapping : arrival.made)
    if (table.unmap(lock, mapping)) table.strand(mapping);
  lock.drive([&] {
    for (auto& rest : arrival.handles) physical.give_back(rest);
    physical.trim(arrival.tier, arrival.cached_before);
  });
  settle_arrival(arrival, false);
  if (config.lazy) return;
  for (const Run& run : arrival.runs) {
    pool.change_place(run.first * config.page_bytes, run.end() * config.page_bytes, Place::kUnbacked);
    give_up_addresses(run.first, run.end());
  }
}

Store::Arrival Store::start_arrival(Lock& lock, std::vector<Run> to_be, const Skip& skip, Tier tier) {
  const std::uint64_t page_bytes = config.page_bytes;
  Arrival arrival{std::move(to_be), tier, physical.cached_bytes(tier), {}, {}, {}};
  const std::vector<Run>& runs = arrival.runs;
  for (const Run& run : runs) set_transit(run.first, run.pages, true);
  arrival.handles.resize(runs.size());
  PageTable::Failure failure{CUDA_SUCCESS, Call::cuMemCreate};
  const auto started = PartCosts::Clock::now();
  lock.drive([&] {
    for (std::size_t i = 0; i < runs.size() && !failure; ++i)
      failure.result = physical.acquire(tier, runs[i].pages, arrival.handles[i]);
  });
  for (std::size_t i = 0; i < runs.size() && !failure; ++i) {
    failure = table.map(lock, runs[i].first, arrival.handles[i]);
    if (failure) break;
    for (std::uint64_t page = runs[i].first; page < runs[i].end(); page = arrival.made.back()->end()) {
      Mapping* mapping = table.mapping_at(page);
      arrival.made.push_back(mapping);
      table.set_live(mapping, pool.live_bytes_in(page * page_bytes, mapping->end() * page_bytes));
      hold(mapping);
      mapping->busy = true;
    }
  }
  if (failure) {
    undo_arrival(lock, arrival);
    device.raise(failure.result, failure.call, "backing pages of buffers in use");
  }
  costs_.add_mapping(pages_of(runs), PartCosts::Clock::now() - started);
  std::vector<Copy> copies;
  std::size_t index = 0;
  for (const Run& run : runs)
    for (std::uint64_t page = run.first; page < run.end(); ++page, ++index) {
      const std::uint64_t swap = table.page(page).swap;
      table.page(page).hollow = swap && index < skip.size() && skip[index];
      if (swap && !table.page(page).hollow) {
        arrival.copied += page_bytes;
        add_copy(copies, page, swap, true);
      } else if (refillable(page)) {
        arrival.refills.push_back(refill_of(page));
      }
    }
  ++moving_;
  if (!copies.empty()) lock.drive([&] { arrival.result = queue(copies, in_stream_, arrival.call); });
  return arrival;
}

void Store::fill_hollow(Lock& lock, const std::vector<std::uint64_t>& pages, const std::vector<bool>& overwritten) {
  std::vector<std::uint64_t> filled;
  std::vector<Copy> copies;
  for (bool busy = true; busy;) {
    busy = false;
    filled.clear();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (overwritten[i]) continue;
      busy = busy || table.mapping_at(pages[i])->busy;  // another thread fills it
      if (table.page(pages[i]).hollow) filled.push_back(pages[i]);
    }
    if (busy) wait_for_change(lock, "pages that another thread is moving");
  }
  if (filled.empty()) return;
  for (std::uint64_t page : filled) {
    table.mapping_at(page)->busy = true;
    table.page(page).hollow = false;
    add_copy(copies, page, table.page(page).swap, true);
  }
  CUresult result;
  Call call;
  const Point copying = queue_copies(lock, copies, in_slot_, result, call);
  if (result == CUDA_SUCCESS) migrated_in_bytes += filled.size() * config.page_bytes;
  for (std::uint64_t page : filled) {
    Mapping* mapping = table.mapping_at(page);
    mapping->busy = false;
    table.page(page).hollow = result != CUDA_SUCCESS;
    table.page(page).copying = copying;
    if (!order.complete(copying)) mapping->uses.add(copying);
  }
  changed_.notify_all();
  if (result != CUDA_SUCCESS) device.raise(result, call, "copying pages between device and host");
}

void Store::finish_arrival(Lock& lock, Arrival& arrival, std::vector<Mapping*>& out) {
  Point copying;
  if (arrival.copied && config.lazy && arrival.refills.empty() && arrival.result == CUDA_SUCCESS) {
    copying = copies_queued(lock, in_slot_);
  } else if (arrival.copied) {
    finish_copies(lock, in_stream_, arrival.result, arrival.call);
  }
  --moving_;
  if (arrival.result != CUDA_SUCCESS) {
    undo_arrival(lock, arrival);
    device.raise(arrival.result, arrival.call, "copying pages between device and host");
  }
  try {
    refill(lock, arrival.refills);
  } catch (...) {
    undo_arrival(lock, arrival);
    throw;
  }
  migrated_in_bytes += arrival.copied;
  note_filled(arrival.refills);
  for (Mapping* mapping : arrival.made) {
    mapping->busy = false;
    if (!order.complete(copying)) mapping->uses.add(copying);
  }
  for (const Run& run : arrival.runs)
    for (std::uint64_t page = run.first; page < run.end(); ++page) {
      table.page(page).copying = copying;
      table.page(page).ahead = arrival.ahead;
    }
  settle_arrival(arrival, true);
  if (arrival.ahead) prefetched_bytes += arrival.copied;
  for (const Run& run : arrival.runs) {
    if (config.lazy && !arrival.ahead) faulted_bytes += run.pages * config.page_bytes;
    note_moved(run.first, run.pages, arrival.tier == Tier::kDevice ? Place::kDevice : Place::kHost);
  }
  out.insert(out.end(), arrival.made.begin(), arrival.made.end());
}

void Store::swap_in(Lock& lock, std::vector<Run> runs, const Skip& skip, Tier tier, std::vector<Mapping*>& out, bool ahead) {
  Arrival arrival = start_arrival(lock, std::move(runs), skip, tier);
  arrival.ahead = ahead;
  finish_arrival(lock, arrival, out);
}

}  // namespace memx
