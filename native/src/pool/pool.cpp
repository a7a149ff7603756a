#include "memx/pool.h"

#include <algorithm>
#include <string>

#include "tlsf_find.h"

namespace memx {
namespace {

constexpr unsigned kReadyProbes = 16;
constexpr unsigned kOrderedProbes = 64;

}  // namespace

Pool::Pool(StreamTable& order, std::uint64_t base, std::uint64_t reservation_bytes)
    : order_(order), base_(base), starts_(reservation_bytes / kGranularity), granules_(reservation_bytes / kGranularity) {
  std::uint64_t words = granules_;
  for (auto& level : bits_) {
    words = (words + 63) / 64;
    level = std::make_unique<SparseArray<std::uint64_t>>(words);
  }
}

Pool::~Pool() = default;

std::uint64_t Pool::aligned_start(const Block* block, std::uint64_t align) const {
  return (base_ + block->begin + align - 1) / align * align - base_;
}

bool Pool::fits(const Block* block, std::uint64_t bytes, std::uint64_t align) const {
  return aligned_start(block, align) + bytes <= block->end();
}

Pool::Lists& Pool::lists(KeyId key) {
  if (key >= lists_.size()) lists_.resize(key + 1);
  return lists_[key];
}

Block* Pool::make(std::uint64_t begin, std::uint64_t bytes) {
  Block* block;
  if (unused_.empty()) {
    block = &slab_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
  }
  block->begin = begin;
  block->bytes = bytes;
  index(block);
  return block;
}

void Pool::drop(Block* block) {
  unindex(block->begin);
  if (block->prev) block->prev->next = nullptr;
  if (block->next) block->next->prev = nullptr;
  *block = Block();
  unused_.push_back(block);
}

void Pool::index(Block* block) {
  std::uint64_t granule = block->begin / kGranularity;
  starts_[granule] = block;
  for (auto& level : bits_) {
    std::uint64_t& word = (*level)[granule / 64];
    bool had = word != 0;
    word |= 1ull << (granule % 64);
    if (had) break;
    granule /= 64;
  }
}

void Pool::unindex(std::uint64_t begin) {
  std::uint64_t granule = begin / kGranularity;
  starts_[granule] = nullptr;
  for (auto& level : bits_) {
    std::uint64_t& word = (*level)[granule / 64];
    word &= ~(1ull << (granule % 64));
    if (word) break;
    granule /= 64;
  }
}

Block* Pool::starting_at(std::uint64_t offset) {
  if (offset % kGranularity || offset / kGranularity >= granules_) return nullptr;
  return starts_[offset / kGranularity];
}

Block* Pool::at(std::uint64_t offset) {
  std::uint64_t granule = offset / kGranularity;
  if (granule >= granules_) return nullptr;
  // Up until a word has a start at or before the granule, then down along the last one.
  std::uint64_t index = granule;
  for (int level = 0; level < kLevels; ++level) {
    std::uint64_t bit = index % 64;
    std::uint64_t mask = level == 0 ? (bit == 63 ? ~0ull : (1ull << (bit + 1)) - 1) : (1ull << bit) - 1;
    std::uint64_t word = (*bits_[level])[index / 64] & mask;
    index /= 64;
    if (!word) continue;
    index = index * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero(word));
    for (int down = level - 1; down >= 0; --down)
      index = index * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero((*bits_[down])[index]));
    Block* block = starts_[index];
    return block && offset < block->end() ? block : nullptr;
  }
  return nullptr;
}

std::uint32_t Pool::list_of(const PointSet& points) const {
  if (points.empty()) return kClean;
  if (points.size() > 1 || points[0].slot == StreamTable::kContext || points[0].slot == StreamTable::kGraph) return kMixed;
  return kFirstStream + points[0].slot;
}

void Pool::enlist(Block* block) {
  block->list = list_of(block->points);
  auto& by_points = lists(block->key).by_points;
  if (block->list >= by_points.size()) by_points.resize(block->list + 1);
  if (!by_points[block->list]) by_points[block->list] = std::make_unique<SizeClasses>();
  by_points[block->list]->insert(block);
  if (block->list == kMixed) pending_bytes_ += block->bytes;
}

void Pool::delist(Block* block) {
  lists_[block->key].by_points[block->list]->remove(block);
  if (block->list == kMixed) pending_bytes_ -= block->bytes;
}

void Pool::link_neighbours(Block* block) {
  Block* before = block->begin ? at(block->begin - 1) : nullptr;
  Block* after = starting_at(block->end());
  if ((block->prev = before)) before->next = block;
  if ((block->next = after)) after->prev = block;
}

Block* Pool::absorb_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->points.merge(next->points);
  Block* after = next->next;
  next->prev = nullptr;
  drop(next);
  if ((block->next = after)) after->prev = block;
  return block;
}

Block* Pool::coalesce(Block* block) {
  auto mergeable = [&](Block* other) {
    if (!other || other->live || other->held || other->key != block->key) return false;
    std::uint32_t mine = list_of(block->points);
    return mine == other->list || mine == kClean || other->list == kClean;
  };
  for (;;) {
    order_.prune_complete(block->points);  // what was absorbed may carry completed points
    if (mergeable(block->next)) {
      delist(block->next);
      absorb_next(block);
    } else if (mergeable(block->prev)) {
      delist(block->prev);
      block = absorb_next(block->prev);
    } else {
      break;
    }
  }
  enlist(block);
  return block;
}

Block* Pool::split(Block* block, std::uint64_t at) {
  Block* upper = make(at, block->end() - at);
  block->bytes = at - block->begin;
  upper->key = block->key;
  upper->points = block->points;
  upper->prev = block;
  if ((upper->next = block->next)) upper->next->prev = upper;
  block->next = upper;
  return upper;
}

Block* Pool::find(KeyId key, std::uint64_t bytes, std::uint64_t align, Slot slot, Scan scan, Slot graph) {
  if (key >= lists_.size()) return nullptr;
  auto& by_points = lists_[key].by_points;
  auto search = [&](std::uint32_t list, unsigned probes, bool check_order) -> Block* {
    if (list >= by_points.size() || !by_points[list] || by_points[list]->empty()) return nullptr;
    return by_points[list]->find(bytes, probes, [&](Block* block) {
      return fits(block, bytes, align) && (!check_order || order_.usable(block->points, slot, graph));
    });
  };
  const std::uint32_t own = kFirstStream + slot;
  Block* best = slot == StreamTable::kContext ? nullptr : search(own, kReadyProbes, false);
  Block* clean = search(kClean, kReadyProbes, false);
  if (clean && (!best || clean->bytes < best->bytes)) best = clean;
  Block* captured = graph == StreamTable::kNone ? nullptr : search(kFirstStream + graph, kReadyProbes, false);
  if (captured && (!best || captured->bytes < best->bytes)) best = captured;
  if (best || scan == Scan::kReady) return best;
  for (std::uint32_t list = kMixed; list < by_points.size(); ++list) {
    if (list == own) continue;
    Block* block = search(list, kOrderedProbes, scan == Scan::kOrdered);
    if (block && (!best || block->bytes < best->bytes)) best = block;
  }
  return best;
}

Block* Pool::take(Block* block, std::uint64_t bytes, std::uint64_t align, Slot slot, std::uint64_t requested) {
  if (!block->held) delist(block);
  block->held = false;
  std::uint64_t start = aligned_start(block, align);
  if (start > block->begin) {
    Block* upper = split(block, start);
    upper->live = true;
    coalesce(block);
    block = upper;
  }
  block->live = true;
  if (block->bytes > bytes) coalesce(split(block, block->begin + bytes));
  block->requested = requested;
  block->slot = slot;
  order_.prune(block->points, slot);
  return block;
}

Block* Pool::release(Block* block, PointSet points) {
  block->live = block->moved = block->lost = false;
  block->used_on.clear();
  block->pins = 0;
  block->points = std::move(points);
  return coalesce(block);
}

void Pool::release_pieces(Block* block, PointSet points, const std::vector<Piece>& pieces) {
  block->live = block->moved = block->lost = false;
  block->used_on.clear();
  block->pins = 0;
  block->points = std::move(points);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Block* rest = i + 1 < pieces.size() ? split(block, pieces[i].end) : nullptr;
    if (rest) rest->held = true;  // not to be merged before it has its own key
    block->held = false;
    block->key = key_of(tag_of(block->key), pieces[i].place);
    coalesce(block);
    block = rest;
  }
}

Block* Pool::add_range(std::uint64_t begin, std::uint64_t bytes, KeyId key) {
  Block* block = make(begin, bytes);
  block->key = key;
  link_neighbours(block);
  lists(key).top = block->end();
  block->held = true;
  return block;
}

Block* Pool::tail(KeyId key, Slot slot, Slot graph) {
  std::uint64_t end = top(key);
  Block* block = end ? at(end - 1) : nullptr;
  if (!block || block->live || block->held || block->key != key || block->end() != end) return nullptr;
  return order_.usable(block->points, slot, graph) ? block : nullptr;
}

std::uint64_t Pool::top(KeyId key) const { return key < lists_.size() ? lists_[key].top : 0; }

void Pool::hold(Block* block) {
  delist(block);
  block->held = true;
}

void Pool::unhold(Block* block) {
  block->held = false;
  enlist(block);
}

void Pool::extend(Block* block, std::uint64_t bytes) {
  block->bytes += bytes;
  if ((block->next = starting_at(block->end()))) block->next->prev = block;
  lists(block->key).top = block->end();
}

bool Pool::free_points(std::uint64_t begin, std::uint64_t end, PointSet& out) {
  for (Block* block = at(begin); block && block->begin < end; block = block->next) {
    if (block->live || block->held) return false;
    out.merge(block->points);
  }
  return true;
}

PointSet Pool::pending_points(std::uint64_t begin, std::uint64_t end) {
  PointSet points;
  for (Block* block = at(begin); block && block->begin < end; block = block->next)
    if (!block->live) points.merge(block->points);
  order_.prune_complete(points);
  return points;
}

Block* Pool::isolate(Block* block, std::uint64_t begin, std::uint64_t end) {
  delist(block);
  if (begin > block->begin) {
    Block* upper = split(block, begin);
    enlist(block);
    block = upper;
  }
  if (block->end() > end) enlist(split(block, end));
  return block;
}

void Pool::remove_range(std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t offset = begin; offset < end;) {
    Block* block = isolate(at(offset), begin, end);
    offset = block->end();
    drop(block);
  }
}

void Pool::change_place(std::uint64_t begin, std::uint64_t end, Place place) {
  for (std::uint64_t offset = begin; offset < end;) {
    Block* block = at(offset);
    if (!block) return;
    offset = block->end();
    if (block->live) {
      block->moved = true;
      continue;
    }
    KeyId key = key_of(tag_of(block->key), place);
    if (block->key == key) continue;
    block = isolate(block, begin, end);
    block->key = key;
    offset = coalesce(block)->end();
  }
}

void Pool::retire(std::uint32_t tag, Point over) {
  for (Place place : {Place::kDevice, Place::kHost, Place::kUnbacked, Place::kLazy})
    if (key_of(tag, place) < lists_.size()) lists_[key_of(tag, place)].top = 0;
  for (Block& block : slab_) {
    if (!block.bytes || tag_of(block.key) != tag) continue;
    if (!block.live) delist(&block);
    block.key = key_of(0, place_of(block.key));
    const std::size_t before = block.points.size();
    block.points.remove_if([&](const Point& point) { return order_.is_graph(point.slot); });
    if (block.points.size() < before) block.points.add(over);
    if (!block.live) coalesce(&block);
  }
}

std::uint64_t Pool::live_bytes_in(std::uint64_t begin, std::uint64_t end) {
  std::uint64_t bytes = 0;
  for (Block* block = at(begin); block && block->begin < end; block = block->next)
    if (block->live) bytes += std::min(end, block->end()) - std::max(begin, block->begin);
  return bytes;
}

void Pool::tidy() {
  for (Block& block : slab_) {
    if (!block.bytes || block.live || block.held || block.list == kClean) continue;
    PointSet points = block.points;
    order_.prune_complete(points);
    if (points.size() == block.points.size()) continue;
    delist(&block);
    coalesce(&block);
  }
}

std::uint64_t Pool::largest_free(KeyId key) {
  std::uint64_t largest = 0;
  for (Block& block : slab_)
    if (block.bytes && !block.live && block.key == key) largest = std::max(largest, block.bytes);
  return largest;
}

bool Pool::check(std::string* why) {
  std::uint64_t pending = 0;
  for (Block& block : slab_) {
    if (!block.bytes) continue;
    auto bad = [&](const char* what) {
      *why = std::string(what) + " at offset " + std::to_string(block.begin);
      return false;
    };
    if (at(block.begin) != &block || at(block.end() - 1) != &block) return bad("the index misses a block");
    if (block.next && (block.next->prev != &block || block.next->begin != block.end())) return bad("a broken neighbour link");
    if (block.begin % kGranularity || block.bytes % kGranularity) return bad("an unaligned block");
    if (block.live) {
      if (block.requested > block.bytes) return bad("a block smaller than was asked");
      continue;
    }
    if (block.held) return bad("a block left held");
    if (block.list != list_of(block.points)) return bad("a free block in the wrong list");
    if (block.list == kMixed) pending += block.bytes;
    if (block.next && !block.next->live && block.next->key == block.key && block.next->list == block.list)
      return bad("two free neighbours that are not coalesced");
  }
  if (pending != pending_bytes_) {
    *why = "pending bytes are miscounted";
    return false;
  }
  return true;
}

}  // namespace memx
