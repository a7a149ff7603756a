// Use of buffers: what is needed is on the device and stays there meanwhile; what is idle gives way.
#include <algorithm>
#include <chrono>

#include "memx/store.h"

namespace memx {
namespace {

constexpr std::chrono::seconds kWaitBound{60};

}  // namespace

void Store::hold(Mapping* mapping) {
  if (mapping->pins++ == 0) pinned_bytes_ += mapping->pages() * config.page_bytes;
}

void Store::let_go(std::vector<Mapping*>& mappings) {
  for (Mapping* mapping : mappings)
    if (--mapping->pins == 0) pinned_bytes_ -= mapping->pages() * config.page_bytes;
  mappings.clear();
  changed_.notify_all();
}

bool Store::in_use_by_this_thread() const {
  for (const auto& [token, use] : uses_)
    if (use.owner == std::this_thread::get_id() && !use.mappings.empty()) return true;
  return false;
}

void Store::wait_for_change(Lock& lock, const char* what) {
  if (lock.wait_for(changed_, kWaitBound) == std::cv_status::timeout)
    throw Error(ErrorKind::kOutOfMemory, "waited " + std::to_string(kWaitBound.count()) + " s for " + what);
}

// Holds what is mapped of `pages` (sorted) and lists the rest as runs. False: had to wait, look again.
bool Store::hold_pages(const std::vector<std::uint64_t>& pages, std::vector<Mapping*>& held, std::vector<Run>& runs,
                       Lock& lock) {
  for (std::uint64_t page : pages) {
    Mapping* mapping = table.mapping_at(page);
    if (mapping && mapping->stuck) {
      if (!lock.past_gate()) {
        let_go(held);
        lock.pass_gate();
        return false;
      }
      table.unstick(lock);
      mapping = table.mapping_at(page);
      if (mapping)
        throw Error(ErrorKind::kInvalidState,
                    "a page of this buffer could not be unmapped after a failed move and cannot be used: try again");
    }
    if (mapping && mapping->busy) {
      let_go(held);
      wait_for_change(lock, "pages that another thread is moving");
      return false;
    }
    if (mapping) {
      if (held.empty() || held.back() != mapping) {
        hold(mapping);
        held.push_back(mapping);
      }
    } else {
      append(runs, page);
    }
  }
  return true;
}

bool Store::pinned(const Mapping* mapping) {
  for (std::uint64_t page = mapping->first; page < mapping->end(); ++page)
    if (table.page(page).pins) return true;
  return false;
}

bool Store::swapped(const std::vector<Run>& runs) {
  for (const Run& run : runs)
    for (std::uint64_t page = run.first; page < run.end(); ++page)
      if (table.page(page).swap) return true;
  return false;
}

std::uint64_t Store::begin_use(Lock& lock, const std::vector<Operand>& operands, Slot slot, bool now) {
  const std::uint64_t page_bytes = config.page_bytes;
  struct Touch {
    std::uint64_t page;
    bool overwritten, written;  // wholly; at all
    bool operator<(const Touch& other) const { return page < other.page; }
  };
  std::vector<Touch> touched;
  for (const Operand& operand : operands) {
    Block* block = operand.block;
    if (block->lost)
      throw Error(ErrorKind::kInvalidState, "this buffer's contents were lost when a move failed and could not be undone");
    if (block->known) {
      const Extra& extra = extras_.at(block);
      if (extra.source && operand.mode & kWrite)
        throw Error(ErrorKind::kInvalidState,
                    "this buffer is filled from its source whenever it comes to the device, so what work writes to it would be "
                    "lost: use it under `reads`, or allocate it without refill");
      if (extra.let_go && operand.mode & kRead) throw Error(ErrorKind::kInvalidState, kLetGo);
    }
    for (std::uint64_t page = operand.begin / page_bytes; page * page_bytes < operand.end; ++page)
      touched.push_back({page, operand.mode == kWrite && operand.begin <= page * page_bytes && operand.end >= (page + 1) * page_bytes,
                         (operand.mode & kWrite) != 0});
  }
  std::sort(touched.begin(), touched.end());
  std::vector<std::uint64_t> pages;
  std::vector<bool> overwritten, written;
  for (const Touch& touch : touched) {
    if (!pages.empty() && pages.back() == touch.page) {
      overwritten.back() = overwritten.back() && touch.overwritten;  // one reader is enough to keep the contents
      written.back() = written.back() || touch.written;
      continue;
    }
    pages.push_back(touch.page);
    overwritten.push_back(touch.overwritten);
    written.push_back(touch.written);
  }
  note_touch(pages, now);
  std::vector<Mapping*> held;
  try {
    for (;;) {
      std::vector<Run> runs;
      if (!hold_pages(pages, held, runs, lock)) continue;
      if (runs.empty()) {
        const std::vector<Refill> late = late_refills(operands);
        if (late.empty()) break;
        if (!refill_late(lock, late, held, slot)) continue;
        break;
      }
      if (!config.lazy)
        throw Error(ErrorKind::kInvalidState, "this buffer is paused: resume its tag before using it");
      if (!lock.past_gate()) {
        let_go(held);
        lock.pass_gate();
        continue;
      }
      collect_dropped();
      const std::uint64_t missing = pages_of(runs) * page_bytes;
      std::uint64_t own = 0;
      for (const Mapping* mapping : held) own += mapping->pages() * page_bytes;
      if (pages.size() * page_bytes > physical.limit(Tier::kDevice))
        throw Error(ErrorKind::kOutOfMemory,
                    "out of memory: the operands of one use need " + format_bytes(pages.size() * page_bytes) + " in " +
                        std::to_string(pages.size()) + " pages at once, and device_limit is " +
                        format_bytes(physical.limit(Tier::kDevice)) + ": raise it, or use fewer or smaller buffers at a time");
      if (own + missing > physical.limit(Tier::kDevice)) {
        // Handles held for a page or two of theirs are in the way: cut them up by moving them out and back.
        std::vector<Mapping*> wide;
        bool others = false;
        for (Mapping* mapping : held)
          for (std::uint64_t page = mapping->first; page < mapping->end(); ++page)
            if (!std::binary_search(pages.begin(), pages.end(), page)) {
              if (mapping->pins > 1)
                others = true;
              else if (!pinned(mapping) && order.waitable(lock, mapping->uses))
                wide.push_back(mapping);
              break;
            }
        let_go(held);
        if (wide.empty()) {
          if (!others || in_use_by_this_thread())
            throw Error(ErrorKind::kOutOfMemory,
                        "out of memory: handles of several pages, of which this use needs only some, are in the way, and "
                        "this thread's own uses in progress, a pin or a captured graph hold them");
          wait_for_change(lock, "buffers that other threads use");
          continue;
        }
        const std::uint64_t first = wide.front()->first;
        wait_for_uses(lock, first);
        Mapping* mapping = table.mapping_at(first);
        if (mapping && !mapping->pins && !mapping->busy) swap_out(lock, {mapping}, true);
        continue;
      }
      const std::uint64_t room = physical.room_bytes(Tier::kDevice);
      if ((missing > room || swapped(runs)) && order.capturing(lock, slot))
        throw Error(ErrorKind::kInvalidState,
                    "pages of this use are not on the device, and nothing is moved while its stream is captured: use "
                    "the buffers once before the capture, or pin them");
      Skip skip;
      for (std::size_t i = 0; i < pages.size(); ++i)
        if (!table.mapping_at(pages[i])) skip.push_back(overwritten[i]);
      bool again = false;
      const Room made = bring(lock, runs, skip, slot, again);
      // Nothing that anybody else will give back: waiting would not help.
      const bool others = pinned_bytes_ > own || moving_ > 0;
      let_go(held);
      if (made == Room::kMade || again) continue;
      if (made == Room::kHostFull || !others || in_use_by_this_thread()) {
        Request request;
        request.requested = request.bytes = missing;
        throw Error(ErrorKind::kOutOfMemory, out_of_memory(request, CUDA_SUCCESS));
      }
      wait_for_change(lock, "buffers that other threads use");
    }
    fill_hollow(lock, pages, overwritten);
    if (now && config.lazy) follow_copies(lock, pages, written, slot);
  } catch (...) {
    let_go(held);
    throw;
  }
  for (const Operand& operand : operands) {
    note_use(operand.block, slot);
    if (!(operand.mode & kWrite)) continue;
    for (std::uint64_t page = operand.begin / page_bytes; page * page_bytes < operand.end; ++page) drop_swap(page);
    if (operand.block->known && operand.begin == operand.block->begin && operand.end - operand.begin >= operand.block->requested)
      extras_.at(operand.block).let_go = false;
  }
  const std::uint64_t token = next_use_++;
  uses_[token] = {std::move(held), slot, std::this_thread::get_id()};
  return token;
}

void Store::note_use(Block* block, Slot slot) {
  if (slot == block->slot) return;
  if (!block->used_on) block->used_on = std::make_unique<SmallVector<Slot, 4>>();
  if (std::find(block->used_on->begin(), block->used_on->end(), slot) == block->used_on->end()) block->used_on->push_back(slot);
}

void Store::end_use(Lock& lock, std::uint64_t token) {
  auto found = uses_.find(token);
  if (found == uses_.end()) return;
  Use use = std::move(found->second);
  uses_.erase(found);
  if (config.lazy && !use.mappings.empty()) {
    const Point point = order.now(lock, use.slot);
    for (Mapping* mapping : use.mappings) {
      order.prune_complete(mapping->uses);
      mapping->uses.add(point);
    }
  }
  for (Mapping* mapping : use.mappings) {
    mapping->referenced = true;
    const std::uint64_t rank = config.lazy ? eviction_->rank(outlook(mapping), now_, ++tick_, mapping->rank) : 0;
    table.touch(mapping, rank, config.lazy ? priority(mapping) : 0);
  }
  let_go(use.mappings);
  work_ahead(lock, use.slot);
}

Store::Room Store::bring(Lock& lock, const std::vector<Run>& runs, const Skip& skip, Slot slot, bool& again) {
  const std::uint64_t page_bytes = config.page_bytes;
  struct Part {
    std::vector<Run> runs;
    Skip skip;
    std::uint64_t pages = 0;
  };
  const std::uint64_t missing = pages_of(runs);
  const auto room = [&] { return physical.room_bytes(Tier::kDevice) + table.idle_bytes(Tier::kDevice); };
  std::vector<std::uint64_t> sizes{missing};
  if (missing > costs_.shortest() && missing * page_bytes > room()) {
    if (order.poll(lock, true)) pool.tidy();
    if (!costs_.measured()) calibrate(lock);
    sizes = costs_.parts(missing);
    // What goes is copied out part after part from now on, while those before it are exchanged.
    if (missing * page_bytes > room()) write_behind(lock, next_victims(missing * page_bytes - room(), slot));
  }
  std::vector<Part> parts;
  auto size = sizes.begin();
  std::size_t index = 0;
  for (const Run& run : runs)
    for (std::uint64_t done = 0; done < run.pages;) {
      if (parts.empty() || parts.back().pages == *size) {
        if (!parts.empty()) ++size;
        parts.emplace_back();
      }
      Part& part = parts.back();
      const std::uint64_t pages = std::min(run.pages - done, *size - part.pages);
      part.runs.push_back({run.first + done, pages});
      for (std::uint64_t i = 0; i < pages; ++i, ++index) part.skip.push_back(index < skip.size() && skip[index]);
      part.pages += pages;
      done += pages;
    }
  std::vector<Mapping*> arrived;
  Room made = Room::kMade;
  try {
    for (Part& part : parts) {
      const std::uint64_t free = physical.room_bytes(Tier::kDevice), needed = part.pages * page_bytes;
      if (needed > free) made = make_room(lock, needed - free, slot);
      for (const Run& run : part.runs)
        for (std::uint64_t page = run.first; page < run.end(); ++page)
          again = again || table.mapping_at(page) || table.page(page).transit;
      again = again || (made == Room::kMade && needed > physical.room_bytes(Tier::kDevice));
      if (made != Room::kMade || again) break;
      swap_in(lock, std::move(part.runs), part.skip, Tier::kDevice, arrived);
    }
  } catch (...) {
    let_go(arrived);
    throw;
  }
  let_go(arrived);
  return made;
}

// What free pages on the device wait for.
std::vector<PointSet> Store::pending_idle() {
  std::vector<PointSet> out;
  for (Mapping* mapping = table.idle(Tier::kDevice).front(); mapping; mapping = mapping->next) {
    PointSet points = mapping->uses;
    if (mapping->pins || mapping->busy ||
        !pool.free_points(mapping->first * config.page_bytes, mapping->end() * config.page_bytes, points))
      continue;
    order.prune_complete(points);
    if (!points.empty()) out.push_back(std::move(points));
  }
  return out;
}

// Frees `bytes` on the device: wholly free pages first, then idle ones as the policy says. Waits for work if only that can
// give, or if it is due before the stream's next anyway.
Store::Room Store::make_room(Lock& lock, std::uint64_t bytes, Slot slot) {
  const std::uint64_t page_bytes = config.page_bytes;
  for (;;) {
    if (order.poll(lock, true)) pool.tidy();
    const std::uint64_t reclaimed = reclaim_idle(lock, Tier::kDevice, bytes);
    if (reclaimed >= bytes) return Room::kMade;
    bytes -= reclaimed;
    auto waitable = [&](const std::vector<PointSet>& sets, bool due) {
      for (const PointSet& points : sets)
        if ((!due || due_before(points, slot)) && order.waitable(lock, points)) return &points;
      return static_cast<const PointSet*>(nullptr);
    };
    std::vector<PointSet> unfinished = pending_idle();
    if (const PointSet* points = waitable(unfinished, true)) {
      wait(lock, (*points)[0]);
      continue;
    }
    bool host_full = false;
    std::vector<Mapping*> victims = choose_victims(bytes, slot, unfinished, host_full);
    PointSet points;
    for (const Mapping* mapping : victims) points.merge(mapping->uses);
    order.prune_complete(points);
    if (!points.empty()) {
      if (order.waitable(lock, points)) {
        wait(lock, points[0]);
        continue;
      }
      victims = choose_victims(bytes, std::nullopt, unfinished, host_full);
    }
    if (!victims.empty()) {
      std::uint64_t freed = 0;
      for (const Mapping* mapping : victims) freed += mapping->pages() * page_bytes;
      swap_out(lock, victims, true);
      if (freed >= bytes) return Room::kMade;
      bytes -= freed;
      continue;
    }
    const PointSet* awaited = waitable(unfinished, false);
    if (!awaited) return host_full ? Room::kHostFull : Room::kInUse;
    wait(lock, (*awaited)[0]);
  }
}

}  // namespace memx
