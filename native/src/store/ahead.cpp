// Copies that nobody waits for: out of what gives way next, in of what is used next.
#include <algorithm>

#include "memx/store.h"

namespace memx {

void Store::follow_copies(Lock& lock, const std::vector<std::uint64_t>& pages, const std::vector<bool>& written, Slot slot) {
  PointSet copies;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Point& copying = table.page(pages[i]).copying;
    if (!order.complete(copying) && (written[i] || copying.slot() == in_slot_)) copies.add(copying);
  }
  if (copies.empty() || (!order.capturing(lock, slot) && order.follow(lock, copies, slot))) return;
  for (const Point& point : copies) wait(lock, point);
}

void Store::write_behind(Lock& lock, const std::vector<Mapping*>& mappings) {
  std::vector<std::uint64_t> pages;
  std::unordered_map<std::uint32_t, std::uint64_t> more;  // to come to the host, by tag
  for (const Mapping* mapping : mappings) {
    if (!order.complete(mapping->uses)) continue;
    for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
      if (fate(page) != Fate::kDirty) continue;
      if (!host_limits_.empty() && !host_allows(tag_at(page), more[tag_at(page)] += config.page_bytes)) continue;
      pages.push_back(page);
    }
  }
  std::vector<Handle> handles;
  const std::uint64_t room = physical.room_bytes(Tier::kPinned) / config.page_bytes;
  pages.resize(std::min<std::uint64_t>(pages.size(), room));
  if (pages.empty() || lock.drive([&] { return physical.acquire(Tier::kPinned, pages.size(), handles); }) != CUDA_SUCCESS) return;
  const std::vector<std::uint64_t> slots = cut(handles);
  // A use may have begun meanwhile; from here on none begins until the copies are queued.
  std::size_t next = 0;
  while (next < pages.size()) {
    std::vector<Copy> copies;
    std::vector<Mapping*> busy;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> placed;  // page, slot
    for (; next < pages.size(); ++next) {
      Mapping* mapping = table.mapping_at(pages[next]);
      const bool mine = !busy.empty() && busy.back() == mapping;
      if (!mine && placed.size() >= costs_.shortest()) break;  // a mapping's pages stay together
      if (!mapping || mapping->stuck || mapping->pins || (mapping->busy && !mine) || !order.complete(mapping->uses) ||
          fate(pages[next]) != Fate::kDirty) {
        put_pinned(slots[next]);
        continue;
      }
      if (!mine) busy.push_back(mapping);
      mapping->busy = true;
      placed.emplace_back(pages[next], slots[next]);
      add_copy(copies, pages[next], slots[next], false);
    }
    CUresult result;
    Call call;
    const Point copying = queue_copies(lock, copies, out_slot_, result, call);
    for (Mapping* mapping : busy) {
      mapping->busy = false;
      if (!order.complete(copying)) mapping->uses.add(copying);
    }
    for (const auto& [page, slot] : placed) {
      if (result != CUDA_SUCCESS) {
        put_pinned(slot);
        continue;
      }
      migrated_out_bytes += config.page_bytes;
      if (!live_in_page(page)) {  // freed while the copies were queued
        dropped_.push_back({slot, copying});
        continue;
      }
      table.page(page).copying = copying;
      clean_bytes_ += config.page_bytes;
      put_swap(page, slot);
    }
    changed_.notify_all();
    if (result == CUDA_SUCCESS) continue;
    for (; next < pages.size(); ++next) put_pinned(slots[next]);
  }
}

void Store::calibrate(Lock& lock) {
  constexpr std::uint64_t kPages = 8;
  constexpr int kTries = 3;
  std::vector<Handle> handles;
  if (physical.room_bytes(Tier::kPinned) < kPages * config.page_bytes ||
      lock.drive([&] { return physical.acquire(Tier::kPinned, kPages, handles); }) != CUDA_SUCCESS)
    return;
  const std::vector<Mapping*> idle = next_victims(config.page_bytes, std::nullopt);
  if (!idle.empty() && order.complete(idle.front()->uses)) {
    Mapping* const mapping = idle.front();
    mapping->busy = true;
    std::vector<Copy> copies;
    for (const Handle& handle : handles) copies.push_back({table.address(mapping->first), handle.value, config.page_bytes, false});
    CUresult result = CUDA_SUCCESS;
    Call call;
    auto time = [&](std::size_t count) {
      PartCosts::Clock::duration best = PartCosts::Clock::duration::max();
      for (int i = 0; i < kTries && result == CUDA_SUCCESS; ++i) {
        const auto start = PartCosts::Clock::now();
        result = queue({copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count)}, stream_, call);
        finish_copies(stream_, result, call);
        best = std::min(best, PartCosts::Clock::now() - start);
      }
      return best;
    };
    Moving moving(*this);
    lock.unlock();
    const auto one = time(1), many = time(kPages);
    lock.lock();
    if (result == CUDA_SUCCESS) costs_.measure(one, many, kPages);
    mapping->busy = false;
    changed_.notify_all();
  }
  for (const Handle& handle : handles) physical.put(handle);
}

void Store::work_ahead(Lock& lock, Slot slot) noexcept {
  if (!config.low_water && !config.look_ahead) return;
  try {
    // Whoever is past the gate is moving pages already, and does this after a use of its own.
    if (!lock.try_gate() || device.sticky() || order.capturing(lock, slot)) return;
    if (order.poll(lock, true)) pool.tidy();
    collect_dropped();
    bring_ahead(lock, slot);
    keep_low_water(lock, slot);
  } catch (...) {  // met again, and told, by whoever needs the pages
  }
}

void Store::keep_low_water(Lock& lock, Slot slot) {
  const std::uint64_t free = physical.room_bytes(Tier::kDevice) + table.idle_bytes(Tier::kDevice);
  if (free < config.low_water) write_behind(lock, next_victims(config.low_water - free, slot));
}

void Store::note_upcoming(Block* block, bool ends) {
  if (!config.look_ahead) return;
  Extra& extra = extras_.at(block);
  if (extra.due) upcoming_.erase({extra.due, block});
  const std::uint64_t next = ends ? kNever : next_use(block);
  extra.due = next == kNever ? 0 : next;
  if (extra.due) upcoming_.emplace(extra.due, block);
}

template <class Visit>
void Store::each_upcoming(Visit visit) {
  constexpr std::uint64_t kMostUses = 4;  // brought earlier, they would be in the way
  while (!upcoming_.empty() && upcoming_.begin()->first <= now_) note_upcoming(upcoming_.begin()->second);
  for (const auto& [due, block] : upcoming_) {
    if (due > now_ + kMostUses) return;
    if (is_dead(block)) continue;
    const std::uint64_t first = block->begin / config.page_bytes, end = (block->end() - 1) / config.page_bytes + 1;
    if (!visit(Run{first, end - first})) return;
  }
  if (!upcoming_.empty()) return;
  for (std::uint64_t ahead = 1; ahead <= kMostUses; ++ahead) {
    const std::vector<Run>* use = recurrence_.expected(ahead);
    if (!use) return;
    for (const Run& run : *use)
      if (!visit(run)) return;
  }
}

// In place of what would go first, but for work on it that is not over, goes only what is used again not much sooner: it would
// have to be brought back otherwise.
bool Store::make_room_ahead(Lock& lock, std::uint64_t bytes, Slot slot, const Order& upcoming, std::size_t position) {
  auto lacking = [&] {
    const std::uint64_t room = physical.room_bytes(Tier::kDevice);
    return bytes > room ? bytes - room : 0;
  };
  if (lacking()) reclaim_idle(lock, Tier::kDevice, lacking());
  if (!lacking()) return true;
  bool copied = true;
  std::uint64_t freed = 0;
  std::vector<Mapping*> victims = next_victims(lacking(), slot);
  auto distance = [&](const std::vector<Mapping*>& mappings) {
    std::uint64_t nearest = kNever;
    for (const Mapping* mapping : mappings) {
      const std::uint64_t next = outlook(mapping).next;
      nearest = std::min(nearest, next == kNever ? next : next - std::min(next, now_));
    }
    return static_cast<double>(nearest);
  };
  if (std::any_of(victims.begin(), victims.end(), [&](const Mapping* mapping) { return !order.complete(mapping->uses); })) {
    const double first = distance(victims);
    victims = next_victims(lacking(), std::nullopt);
    if (distance(victims) < 0.75 * first) return false;
  }
  for (const Mapping* mapping : victims) {
    freed += mapping->pages() * config.page_bytes;
    copied = copied && order.complete(mapping->uses);
    for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
      if (const auto used = upcoming.find(page); used != upcoming.end() && used->second <= position) return false;
      copied = copied && fate(page) != Fate::kDirty;
    }
  }
  if (freed < lacking()) return false;
  if (!copied) {
    write_behind(lock, victims);  // so that there is room the next time
    return false;
  }
  swap_out(lock, victims, true);
  return !lacking();
}

void Store::bring_ahead(Lock& lock, Slot slot) {
  std::erase_if(ahead_, [&](std::uint64_t page) {
    Page& entry = table.page(page);
    entry.ahead = entry.ahead && entry.mapping;
    return !entry.ahead;
  });
  const std::uint64_t most = config.look_ahead / config.page_bytes;
  if (ahead_.size() >= most) return;
  auto missing = [&](std::uint64_t page) {
    const Page& entry = table.page(page);
    return !entry.mapping && !entry.transit && entry.swap && live_in_page(page);
  };
  std::vector<std::uint64_t> wanted;
  Order upcoming;
  each_upcoming([&](const Run& run) {
    for (std::uint64_t page = run.first; page < run.end(); ++page) {
      if (!upcoming.emplace(page, upcoming.size()).second || !missing(page)) continue;
      wanted.push_back(page);
      if (ahead_.size() + wanted.size() == most) return false;
    }
    return upcoming.size() * config.page_bytes < physical.limit(Tier::kDevice);
  });
  for (std::size_t next = 0; next < wanted.size();) {
    const std::uint64_t part = std::min<std::uint64_t>(costs_.shortest(), wanted.size() - next);
    if (!make_room_ahead(lock, part * config.page_bytes, slot, upcoming, upcoming.at(wanted[next + part - 1]))) return;
    const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(next);
    std::vector<std::uint64_t> pages(begin, begin + static_cast<std::ptrdiff_t>(part));
    next += part;
    std::sort(pages.begin(), pages.end());
    std::vector<Run> runs;
    for (std::uint64_t page : pages)
      if (missing(page)) append(runs, page);
    if (runs.empty()) continue;
    std::vector<Mapping*> arrived;
    swap_in(lock, runs, {}, Tier::kDevice, arrived, true);
    for (Mapping* mapping : arrived)
      table.touch(mapping, eviction_->rank(outlook(mapping), now_, ++tick_, 0), priority(mapping));
    let_go(arrived);
    for (const Run& run : runs)
      for (std::uint64_t page = run.first; page < run.end(); ++page) ahead_.push_back(page);
  }
}

}  // namespace memx
