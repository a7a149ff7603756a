// Planned places: an arena of device memory, kept for plans, and blocks cut from it at given offsets.
#include <algorithm>

#include "memx/store.h"

namespace memx {

std::uint64_t Store::make_arena(Lock& lock, std::uint64_t bytes, std::uint32_t tag) {
  if (config.lazy)
    throw Error(ErrorKind::kInvalidState, "a lazy resource plays no plans: its memory is placed page by page as it is used");
  Request request;
  request.requested = request.bytes = (bytes + config.page_bytes - 1) / config.page_bytes * config.page_bytes;
  request.tag = tag;
  request.placement = Placement::kDevice;
  Block* block;
  try {
    block = allocate(lock, request);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kOutOfMemory) throw;
    throw Error(ErrorKind::kOutOfMemory, "the arena of the plans does not fit: " + std::string(error.what()), error.code);
  }
  const std::uint64_t begin = block->begin;
  table.keep(begin, block->end(), true);
  release(block);
  return begin;
}

void Store::end_arena(std::uint64_t begin, std::uint64_t end, std::uint32_t tag) {
  table.keep(begin, end, false);
  pool.retire(tag, order.latest(StreamTable::kContext));
}

Block* Store::allocate_at(Lock& lock, const Request& request, std::uint64_t begin) {
  const std::uint64_t end = begin + request.bytes;
  auto waits_for = [&](PointSet& points) {
    points.clear();
    const Mapping* mapping = table.mapping_at(begin / config.page_bytes);
    if (!mapping || !mapping->kept) return false;  // the arena was ended meanwhile
    if (!pool.free_points(begin, end, points)) return false;
    order.prune_complete(points);
    return true;
  };
  if ((space.base() + begin) % request.align) return nullptr;
  PointSet points;
  if (!waits_for(points)) return nullptr;
  const bool mutual = order.mode() == ReuseMode::kMutual;
  if (!order.usable(points, request.slot)) {
    lock.pass_gate();
    order.learn(lock, request.slot);
    if (!order.capturing(lock, request.slot) && order.poll(lock, true)) pool.tidy();
    if (!waits_for(points) || !(mutual || order.usable(points, request.slot))) return nullptr;
  }
  Block* block = pool.hold_range(begin, end);
  const bool follows = order.usable(block->points, request.slot) ? order.make_explicit(lock, block->points, request.slot)
                                                                 : order.insert_waits(lock, block->points, request.slot);
  if (!follows) {
    pool.unhold(block);
    return nullptr;
  }
  block = pool.take(block, request.bytes, kGranularity, request.slot, request.requested);
  block->asked_tag = request.tag;
  table.add_live(begin, end);
  return block;
}

bool Store::planned(const Block* block) {
  const Mapping* mapping = table.mapping_at(block->begin / config.page_bytes);
  return mapping && mapping->kept;
}

}  // namespace memx
