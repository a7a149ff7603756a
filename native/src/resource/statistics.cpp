// What a resource counts and records, and whether its books are right.
#include <algorithm>
#include <stdexcept>

#include "memx/resource.h"

namespace memx {

Statistics Resource::statistics() {
  Lock lock = enter_even_closed();
  Statistics out{};
  out.all = demands_.of(Tally::kAll);
  out.small = demands_.of(Tally::kSmall);
  out.large = demands_.of(Tally::kLarge);
  out.out_of_memory_errors = out_of_memory_errors_;
  for (unsigned i = 0; i < static_cast<unsigned>(Call::kCount); ++i)
    if (std::uint64_t n = device_->count(static_cast<Call>(i))) out.driver_calls[call_name(static_cast<Call>(i))] = n;
  if (!store_) return out;
  update();
  out.active = active_;
  const Physical& physical = store_->physical;
  out.inactive = {store_->table.inactive_bytes(), store_->table.peak_inactive_bytes};
  out.reserved = physical.reserved();
  out.segments = physical.segments();
  out.host = {physical.host_bytes(), physical.peak_host_bytes};
  out.migrated_in_bytes = store_->migrated_in_bytes;
  out.migrated_out_bytes = store_->migrated_out_bytes;
  out.faulted_bytes = store_->faulted_bytes;
  out.refilled_bytes = store_->refilled_bytes;
  out.prefetched_bytes = store_->prefetched_bytes;
  out.prefetched_used_bytes = store_->prefetched_used_bytes;
  out.reuse_hits = store_->reuse_hits;
  out.search_probes = store_->pool.probes;
  return out;
}

void Resource::reset_peak_statistics() {
  Lock lock = enter_even_closed();
  demands_.each([](Tally& tally) { tally.reset_peaks(); });
  active_.peak = active_.current;
  if (!store_) return;
  store_->physical.reset_peaks();
  store_->table.peak_inactive_bytes = store_->table.inactive_bytes();
}

void Resource::reset_accumulated_statistics() {
  Lock lock = enter_even_closed();
  demands_.each([](Tally& tally) { tally.reset_totals(); });
  out_of_memory_errors_ = 0;
  if (store_) store_->physical.reset_totals();
}

void Resource::record_events(bool on, std::size_t most) {
  Lock lock = enter_even_closed();
  log_.enable(on, most);
}

void Resource::mark(std::uint64_t number) {
  Lock lock = enter_even_closed();
  log_.add(TraceEvent::kMark, 0, 0, 0, number);
}

std::deque<TraceEvent> Resource::drain_events() {
  Lock lock = enter_even_closed();
  return log_.drain();
}

std::deque<TraceEvent> Resource::recorded_events() {
  Lock lock = enter_even_closed();
  return log_.events();
}

std::vector<BlockInfo> Resource::blocks() {
  Lock lock = enter();
  std::vector<BlockInfo> out;
  store_->pool.for_each([&](const Block& block) {
    const auto state = block.live ? BlockInfo::kAllocated : block.points.size() > 1 ? BlockInfo::kPending : BlockInfo::kFree;
    Place place = place_of(block.key);
    if (block.live && block.moved) {
      const Mapping* mapping = store_->table.mapping_at(block.begin / config_.page_bytes);
      place = !mapping ? Place::kUnbacked : mapping->handle.tier == Tier::kHost ? Place::kHost : Place::kDevice;
    }
    out.push_back({state, place, block.live ? block.asked_tag : tag_of(block.key), store_->space.base() + block.begin, block.bytes,
                   block.live ? block.requested : 0,
                   block.live ? reinterpret_cast<std::uint64_t>(store_->order.handle(block.slot)) : 0});
  });
  std::sort(out.begin(), out.end(), [](const BlockInfo& a, const BlockInfo& b) { return a.address < b.address; });
  return out;
}

Residency Resource::residency(std::uint64_t address) {
  Lock lock = enter();
  Residency out;
  if (address == 0) return out;
  const Block* block = live_block(address, "say where the bytes are of");
  const std::uint64_t end = block->begin + block->requested;
  for (std::uint64_t at = block->begin, stop; at < end; at = stop) {
    const std::uint64_t number = at / config_.page_bytes;
    const Page& page = store_->table.page(number);
    stop = std::min(end, (page.mapping ? page.mapping->end() : number + 1) * config_.page_bytes);
    const bool moving = page.transit || (page.mapping && page.mapping->busy);
    const bool device = page.mapping && page.mapping->handle.tier == Tier::kDevice;
    (moving ? out.moving : device ? out.device : page.mapping || page.swap ? out.host : out.unbacked) += stop - at;
  }
  return out;
}

FreeBlocks Resource::free_blocks() {
  Lock lock = enter();
  FreeBlocks count;
  store_->pool.for_each([&](const Block& block) {
    if (block.live) return;
    count.pending += block.points.size() > 1;
    count.inactive += (block.prev && block.prev->live) || (block.next && block.next->live);
  });
  return count;
}

void Resource::check() {
  Lock lock = enter_even_closed();
  lock.pass_gate();
  if (!store_) return;
  std::string why;
  bool ok = store_->check(lock, &why);
  std::uint64_t allocated = 0, requested = 0;
  store_->pool.for_each([&](const Block& block) {
    if (!block.live) return;
    allocated += block.bytes;
    requested += block.requested;
  });
  if (ok && (allocated != demands_.allocated() || requested != demands_.requested())) {
    ok = false;
    why = "allocated or requested bytes are miscounted";
  }
  if (!ok) throw std::logic_error("memx invariant broken: " + why);
}

}  // namespace memx
