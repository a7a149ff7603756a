// What is known of the uses of pages, gone by and to come, and what gives way by that.
#include <algorithm>
#include <queue>
#include <tuple>

#include "memx/store.h"

namespace memx {

void Store::note_touch(const std::vector<std::uint64_t>& pages, bool now) {
  if (!now) {  // fetched for a use to come, which is the one to be counted
    for (std::uint64_t page : pages) table.page(page).last_use = std::max<std::uint64_t>(now_, 1);
    return;
  }
  const std::uint64_t moved = migrated_in_bytes + migrated_out_bytes + refilled_bytes;
  samples_[now_ % kWindow] = {pages.size() * config.page_bytes, moved};
  ++now_;
  for (std::uint64_t page : pages) {
    Page& entry = table.page(page);
    if (entry.last_use) {
      entry.interval = static_cast<std::uint32_t>(std::min<std::uint64_t>(now_ - entry.last_use, ~0u));
      if (!entry.mapping || entry.ahead) returns_.add(entry.interval);
    }
    if (entry.ahead && entry.mapping) prefetched_used_bytes += config.page_bytes;
    entry.ahead = false;
    entry.last_use = now_;
  }
  if (!config.look_ahead) return;
  std::vector<Run> runs;
  for (std::uint64_t page : pages) append(runs, page);
  recurrence_.add(std::move(runs));
}

void Store::expect(std::vector<Expected> allocations) {
  expected_.clear();
  expected_from_ = now_;
  for (auto it = allocations.rbegin(); it != allocations.rend(); ++it)
    expected_.push_back(std::make_shared<const Expected>(std::move(*it)));
  for (const auto& [block, extra] : extras_) note_upcoming(const_cast<Block*>(block));
}

// The use to come next, in the store's time.
std::uint64_t Store::next_use(Block* block) {
  if (!block->known) return 0;
  Extra& extra = extras_.at(block);
  if (!extra.expected) return 0;
  const std::vector<Expected::Use>& uses = extra.expected->uses;
  while (extra.next < uses.size() && expected_from_ + uses[extra.next].number < now_) ++extra.next;
  return extra.next < uses.size() ? expected_from_ + uses[extra.next].number + 1 : kNever;
}

bool Store::is_dead(Block* block) {
  const std::uint64_t next = next_use(block);
  if (!next) return false;
  const Extra& extra = extras_.at(block);
  return next == kNever ? !extra.expected->kept : extra.expected->uses[extra.next].overwrites;
}

Store::Fate Store::fate(std::uint64_t page) {
  if (!live_in_page(page)) return Fate::kNothing;
  if (refillable(page)) return Fate::kRefill;
  if (table.page(page).swap) return Fate::kClean;
  if (extras_.empty()) return Fate::kDirty;
  bool dead = true;
  each_live(page * config.page_bytes, (page + 1) * config.page_bytes, [&](Block* block) { dead = dead && is_dead(block); });
  return dead ? Fate::kDead : Fate::kDirty;
}

Outlook Store::outlook(const Mapping* mapping) {
  Outlook out;
  out.next = kNever;
  bool known = false;
  double transfers = 0;
  auto expect_at = [&](std::uint64_t use) {
    known = true;
    out.next = std::min(out.next, use);
  };
  for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
    const Fate what = fate(page);
    if (what == Fate::kNothing) continue;
    const Page& entry = table.page(page);
    out.last = std::max(out.last, entry.last_use);
    transfers += what == Fate::kDead ? 0 : what == Fate::kDirty ? 2 : 1;
    const std::uint64_t interval = !returns_.regular() ? 0 : entry.interval ? entry.interval : returns_.usual();
    each_live(page * config.page_bytes, (page + 1) * config.page_bytes, [&](Block* block) {
      if (const std::uint64_t next = next_use(block))
        expect_at(next);
      else if (interval && entry.last_use)
        expect_at(entry.last_use + interval);
    });
  }
  if (!known) out.next = 0;
  out.transfers = transfers / static_cast<double>(mapping->pages());
  return out;
}

std::int32_t Store::priority(const Mapping* mapping) {
  if (extras_.empty()) return 0;
  std::optional<std::int32_t> highest;
  each_live(mapping->first * config.page_bytes, mapping->end() * config.page_bytes, [&](Block* block) {
    const std::int32_t own = block->known ? extras_.at(block).priority : 0;
    highest = std::max(highest.value_or(own), own);
  });
  return highest.value_or(0);
}

// Work that what is queued on the stream now has to come after anyway, or memx's own copies: waiting for it delays nothing but
// the host.
bool Store::due_before(const PointSet& points, Slot slot) {
  return std::all_of(points.begin(), points.end(), [&](const Point& point) { return is_copy(point) || order.ordered(point, slot); });
}

std::vector<Mapping*> Store::choose_victims(std::uint64_t bytes, std::optional<Slot> slot, std::vector<PointSet>& unfinished,
                                            bool& host_full, bool ahead) {
  const std::size_t at_once = eviction_->spares_referenced() ? 1 : 64;  // a clock's hand looks at one after the other
  const std::uint64_t page_bytes = config.page_bytes;
  std::uint64_t host_room = physical.room_bytes(Tier::kPinned) + (ahead ? 0 : clean_bytes_ + dropped_.size() * page_bytes), freed = 0;
  std::vector<Mapping*> victims, spared;
  auto eligible = [&](Mapping* mapping) {
    if (mapping->pins || mapping->busy || pinned(mapping)) return false;
    PointSet points = mapping->uses;
    order.prune_complete(points);
    if (points.empty() || (slot && due_before(points, *slot))) return true;
    if (ahead && std::all_of(points.begin(), points.end(), [&](const Point& point) { return is_copy(point); })) return true;
    unfinished.push_back(std::move(points));
    return false;
  };
  std::unordered_map<std::uint32_t, std::uint64_t> more;  // to come to the host, by tag
  auto take = [&](Mapping* mapping) {
    std::uint64_t copied = 0, copies = 0;  // bytes to go to the host, and there already
    for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
      const Fate what = fate(page);
      if (what == Fate::kDirty) copied += page_bytes;
      if (what == Fate::kClean && !ahead) copies += page_bytes;
    }
    std::uint64_t* const tagged = host_limits_.empty() ? nullptr : &more[tag_at(mapping->first)];
    if (copied + copies > host_room || (tagged && copied && !host_allows(tag_at(mapping->first), *tagged + copied))) {
      host_full = true;
      return;
    }
    if (tagged) *tagged += copied;
    host_room -= copied + copies;
    freed += mapping->pages() * page_bytes;
    victims.push_back(mapping);
  };
  for (const auto& [priority, ranked] : table.ranking().by_priority()) {
    using Scored = std::tuple<double, std::uint64_t, Mapping*>;
    std::priority_queue<Scored> best;
    auto low = ranked.begin(), high = ranked.end();
    auto look = [&](Mapping* mapping) {
      if (!eligible(mapping)) return;
      if (eviction_->spares_referenced() && mapping->referenced) return spared.push_back(mapping);
      best.emplace(eviction_->score(outlook(mapping), mapping->rank, now_), ~mapping->first, mapping);
    };
    while (freed < bytes) {
      while (best.size() < at_once && low != high) {
        look(*low++);
        if (low != high && !eviction_->spares_referenced()) look(*--high);
      }
      if (best.empty()) break;
      Mapping* mapping = std::get<Mapping*>(best.top());
      best.pop();
      take(mapping);
    }
  }
  for (Mapping* mapping : spared) {
    if (ahead) {
      if (freed < bytes) take(mapping);
      continue;
    }
    mapping->referenced = false;
    table.touch(mapping, ++tick_, mapping->priority);
    if (freed >= bytes) continue;
    take(mapping);
  }
  return victims;
}

Thrashing Store::thrashing() {
  Thrashing out;
  out.uses = std::min<std::uint64_t>(now_, kWindow);
  if (!out.uses) return out;
  for (std::uint64_t i = 0; i < out.uses; ++i) out.used_bytes += samples_[i].used_bytes;
  const std::uint64_t oldest = now_ > kWindow ? samples_[now_ % kWindow].moved_before : samples_[0].moved_before;
  out.moved_bytes = migrated_in_bytes + migrated_out_bytes + refilled_bytes - oldest;
  const std::uint64_t since = now_ - out.uses;
  std::vector<std::uint64_t> pages;
  pool.for_each([&](const Block& block) {
    if (!block.live) return;
    for (std::uint64_t page = block.begin / config.page_bytes; page * config.page_bytes < block.end(); ++page)
      if (table.page(page).last_use > since) pages.push_back(page);
  });
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  out.working_set_bytes = pages.size() * config.page_bytes;
  return out;
}

std::uint64_t Store::generation(Block* block) {
  std::uint64_t total = 0;
  for (std::uint64_t page = block->begin / config.page_bytes; page * config.page_bytes < block->end(); ++page)
    total += table.page(page).generation;
  return total;
}

}  // namespace memx
