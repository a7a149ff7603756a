// Which tag has how much of the host's memory.
#include "memx/store.h"

namespace memx {

std::uint32_t Store::tag_at(std::uint64_t page) {
  const Block* block = pool.at(page * config.page_bytes);
  return block ? tag_of(block->key) : 0;
}

void Store::limit_host(std::uint32_t tag, std::uint64_t bytes) {
  if (bytes == kNever)
    host_limits_.erase(tag);
  else
    host_limits_[tag] = bytes;
}

// Of eager pages mapped there the sum is taken anew: few have limits, and fewer are born there.
bool Store::host_allows(std::uint32_t tag, std::uint64_t more) {
  const auto limit = host_limits_.find(tag);
  if (limit == host_limits_.end()) return true;
  std::uint64_t used = swapped_[tag];
  for (MappingList* list : {&table.live(Tier::kHost), &table.idle(Tier::kHost)})
    for (const Mapping* mapping = list->front(); mapping; mapping = mapping->next)
      if (tag_at(mapping->first) == tag) used += mapping->pages() * config.page_bytes;
  return used + more <= limit->second;
}

void Store::put_swap(std::uint64_t page, std::uint64_t slot) {
  Page& entry = table.page(page);
  entry.swap = slot;
  entry.swap_tag = tag_at(page);
  swapped_[entry.swap_tag] += config.page_bytes;
}

void Store::refuse_host(std::uint32_t tag, std::uint64_t bytes) {
  throw Error(ErrorKind::kOutOfMemory, "out of memory: " + format_bytes(bytes) + " more on the host would pass the tag's own limit of " +
                                           format_bytes(host_limits_.at(tag)) + " there: raise it (limit_host), or free buffers of the tag");
}

}  // namespace memx
