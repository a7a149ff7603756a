// The invariants, recomputed from scratch: for tests and for those who doubt.
#include "memx/store.h"

namespace memx {

bool Store::check(Lock& lock, std::string* why) {
  while (moving_ || relocating_) wait_for_change(lock, "pages that another thread is moving");
  if (!order.check(why) || !pool.check(why)) return false;
  std::uint64_t mapped[2] = {}, idle[2] = {}, inactive = 0, swapped = 0, clean = 0;
  bool ok = true;
  auto fail = [&](const char* what) {
    if (ok) *why = what;
    ok = false;
  };
  pool.for_each([&](Block& block) {
    const bool backed = !config.lazy && !block.moved && place_of(block.key) != Place::kUnbacked;
    for (std::uint64_t page = block.begin / config.page_bytes; page * config.page_bytes < block.end(); ++page) {
      const Page& entry = table.page(page);
      if (entry.hollow && !entry.swap) fail("a page's contents are nowhere");
      if (entry.transit) fail("a page left between two mappings");
      const bool backing = entry.mapping && !entry.mapping->busy && !entry.mapping->stuck;
      if (backing && entry.swap && !config.lazy) fail("an eager page is on the device and swapped at once");
      if (backed && !entry.mapping) fail("an eager block has a page that nothing backs");
      if (backed && entry.mapping && (entry.mapping->handle.tier == Tier::kHost) != (place_of(block.key) == Place::kHost))
        fail("a block is listed for another tier than its pages are in");
      // Count each mapping and swapped page once, at the first block that touches it.
      const bool first_here = block.begin <= page * config.page_bytes;
      if (first_here && entry.swap) swapped += config.page_bytes;
      if (first_here && entry.swap && backing) clean += config.page_bytes;
      if (Mapping* mapping = entry.mapping; mapping && first_here && mapping->first == page) {
        const std::uint64_t size = mapping->pages() * config.page_bytes;
        const int tier = static_cast<int>(mapping->handle.tier);
        if (mapping->stuck) continue;
        const std::uint64_t live = pool.live_bytes_in(mapping->first * config.page_bytes, mapping->end() * config.page_bytes);
        if (live != mapping->live_bytes) fail("live bytes of a mapping are miscounted");
        mapped[tier] += size;
        if (!live && !mapping->kept) idle[tier] += size;
        if (live && tier == 0) inactive += size - live;
      }
    }
  });
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    const int t = static_cast<int>(tier);
    if (mapped[t] != table.mapped_bytes(tier)) fail("mapped bytes are miscounted");
    if (idle[t] != table.idle_bytes(tier)) fail("idle bytes are miscounted");
    if (physical.held_bytes(tier) != mapped[t] + physical.cached_bytes(tier) + table.stuck_bytes(tier)) fail("a handle is lost");
  }
  if (inactive != table.inactive_bytes()) fail("inactive bytes are miscounted");
  if (clean != clean_bytes_) fail("host copies of device pages are miscounted");
  std::uint64_t by_tag = 0;
  for (const auto& [tag, bytes] : swapped_) by_tag += bytes;
  if (by_tag != swapped) fail("host pages are miscounted by tag");
  for (const auto& [address, slab] : slabs_) swapped += ((1ull << slab.handle.order) - slab.used) * config.page_bytes;
  swapped += dropped_.size() * config.page_bytes;
  if (physical.held_bytes(Tier::kPinned) != swapped + physical.cached_bytes(Tier::kPinned)) fail("a pinned host page is lost");
  if (physical.held_bytes(Tier::kDevice) > physical.limit(Tier::kDevice)) fail("the device limit is exceeded");
  if (physical.host_bytes() > config.host_limit) fail("the host limit is exceeded");
  return ok;
}

}  // namespace memx
