#include "memx/pool.h"

#include <algorithm>
#include <memory>
#include <new>

namespace memx {
namespace {

constexpr unsigned kReadyProbes = 16;
constexpr unsigned kOrderedProbes = 64;  // of one list
constexpr unsigned kStepsInLine = 64;

}  // namespace

Pool::Pool(StreamTable& order, std::uint64_t base, std::uint64_t reservation_bytes)
    : order_(order), base_(base), index_(reservation_bytes) {}

Pool::~Pool() {
  for (const HugeMemory& chunk : slab_) std::destroy(chunk.as<Block>(), end_of(chunk));
}

std::uint64_t Pool::aligned_start(const Block* block, std::uint64_t align) const {
  return (base_ + block->begin + align - 1) / align * align - base_;
}

bool Pool::fits(const Block* block, std::uint64_t bytes, std::uint64_t align) const {
  if (align <= kGranularity) return block->bytes >= bytes;
  return aligned_start(block, align) + bytes <= block->end();
}

Pool::Lists& Pool::lists(KeyId key) {
  if (key >= lists_.size()) lists_.resize(key + 1);
  return lists_[key];
}

SizeClasses& Pool::make_bin(KeyId key, std::uint32_t list) {
  Lists& lists = this->lists(key);
  if (list >= lists.by_points.size()) {
    lists.by_points.resize(list + 1);
    lists.used.resize(list / 64 + 1);
  }
  auto& classes = lists.by_points[list];
  if (!classes) classes = std::make_unique<SizeClasses>();
  return *classes;
}

Block* Pool::fresh_node() {
  if (slab_.empty() || fresh_ == slab_.back().as<Block>() + slab_.back().bytes() / sizeof(Block)) {
    slab_.emplace_back(slab_.empty() ? kFirstChunk : kChunk);
    fresh_ = slab_.back().as<Block>();
  }
  return new (fresh_++) Block;
}

Block* Pool::node(std::uint64_t begin, std::uint64_t bytes) {
  Block* block = unused_;
  if (block)
    unused_ = block->list_next;
  else
    block = fresh_node();
  block->list_next = nullptr;
  block->begin = begin;
  block->bytes = bytes;
  return block;
}

Block* Pool::make(std::uint64_t begin, std::uint64_t bytes) {
  Block* block = node(begin, bytes);
  index_.insert(block);
  return block;
}

void Pool::recycle(Block* block) {
  index_.remove(block);
  block->bytes = 0;
  block->prev = block->next = nullptr;
  block->points.clear();
  block->live = block->held = false;
  block->list_next = unused_;
  unused_ = block;
}

void Pool::drop(Block* block) {
  if (block->prev) block->prev->next = nullptr;
  if (block->next) block->next->prev = nullptr;
  recycle(block);
}

std::uint32_t Pool::list_of(const PointSet& points) const {
  if (points.empty()) return kClean;
  if (points.size() > 1 || points[0].slot() == StreamTable::kContext || points[0].slot() == StreamTable::kGraph) return kMixed;
  return kFirstStream + points[0].slot();
}

inline void Pool::put(Block* block) {
  if (block->bin->empty()) lists_[block->key].used[block->list / 64] |= 1ull << (block->list % 64);
  block->bin->insert(block);
  if (block->list == kMixed) pending_bytes_ += block->bytes;
}

inline void Pool::pull(Block* block) {
  block->bin->remove(block);
  if (block->bin->empty()) lists_[block->key].used[block->list / 64] &= ~(1ull << (block->list % 64));
  if (block->list == kMixed) pending_bytes_ -= block->bytes;
}

inline void Pool::join_line(Block* block) {
  const Point point = block->points[0];
  if (point.slot() >= lines_.size()) lines_.resize(point.slot() + 1);
  Line& line = lines_[point.slot()];
  Block* before = line.back;
  for (unsigned step = 0; before && before->points[0].number() > point.number() && step < kStepsInLine; ++step) before = before->older;
  block->older = before;
  block->newer = before ? before->newer : line.front;
  (block->older ? block->older->newer : line.front) = block;
  (block->newer ? block->newer->older : line.back) = block;
}

inline void Pool::leave_line(Block* block) {
  Line& line = lines_[block->points[0].slot()];
  (block->older ? block->older->newer : line.front) = block->newer;
  (block->newer ? block->newer->older : line.back) = block->older;
  block->older = block->newer = nullptr;
}

inline void Pool::enlist(Block* block) {
  block->list = list_of(block->points);
  block->bin = &bin(block->key, block->list);
  put(block);
  if (block->list != kClean) join_line(block);
}

inline void Pool::delist(Block* block) {
  pull(block);
  if (block->list != kClean) leave_line(block);
}

void Pool::link_neighbours(Block* block) {
  Block* before = block->begin ? at(block->begin - 1) : nullptr;
  Block* after = starting_at(block->end());
  if ((block->prev = before)) before->next = block;
  if ((block->next = after)) after->prev = block;
}

inline void Pool::absorb_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->points.merge(next->points);
  if ((block->next = next->next)) block->next->prev = block;
  recycle(next);
}

Block* Pool::coalesce(Block* block) {
  order_.prune_complete(block->points);
  std::uint32_t list = list_of(block->points);
  auto mergeable = [&](const Block* other) {
    if (!other || other->live || other->held || other->key != block->key) return false;
    return other->list == list || list == kClean || other->list == kClean;
  };
  for (;;) {
    if (mergeable(block->next)) {
      delist(block->next);
      absorb_next(block);
    } else if (mergeable(block->prev)) {
      Block* prev = block->prev;
      delist(prev);
      absorb_next(prev);
      block = prev;
    } else {
      break;
    }
    order_.prune_complete(block->points);  // what was absorbed may carry completed points
    list = list_of(block->points);
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
  const Lists& lists = lists_[key];
  auto search = [&](std::uint32_t list, unsigned limit, bool check_order) -> Block* {
    if (list >= lists.by_points.size() || !lists.by_points[list] || lists.by_points[list]->empty()) return nullptr;
    unsigned left = limit;
    Block* found = lists.by_points[list]->find(bytes, left, [&](Block* block) {
      return fits(block, bytes, align) && (!check_order || order_.usable(block->points, slot, graph));
    });
    probes += limit - left;
    return found;
  };
  const std::uint32_t own = kFirstStream + slot;
  Block* best = slot == StreamTable::kContext ? nullptr : search(own, kReadyProbes, false);
  auto improve = [&](Block* block) {
    if (block && (!best || block->bytes < best->bytes)) best = block;
  };
  if (!best || best->bytes > bytes) improve(search(kClean, kReadyProbes, false));
  if (graph != StreamTable::kNone) improve(search(kFirstStream + graph, kReadyProbes, false));
  if (best || scan == Scan::kReady) return best;
  for (std::size_t word = 0; word < lists.used.size(); ++word)
    for (std::uint64_t bits = lists.used[word]; bits; bits &= bits - 1) {
      const auto list = static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
      if (list != own && list != kClean) improve(search(list, kOrderedProbes, scan == Scan::kOrdered));
    }
  return best;
}

Block* Pool::take_front(Block* block, std::uint64_t bytes) {
  Block* live = node(block->begin, bytes);
  index_.replace(block, live);
  live->live = true;
  live->key = block->key;
  if ((live->prev = block->prev)) live->prev->next = live;
  live->next = block;
  block->prev = live;
  const bool listed = !block->held;
  if (listed) pull(block);
  block->begin += bytes;
  block->bytes -= bytes;
  if (listed) put(block);
  index_.insert(block);
  return live;
}

Block* Pool::take(Block* block, std::uint64_t bytes, std::uint64_t align, Slot slot, std::uint64_t requested) {
  const std::uint64_t start = align <= kGranularity ? block->begin : aligned_start(block, align);
  if (start > block->begin) {
    if (!block->held) delist(block);
    Block* upper = split(block, start);
    upper->held = upper->live = true;
    block->held = false;
    coalesce(block);
    block = upper;
  }
  if (block->bytes > bytes) {
    Block* rest = block;
    block = take_front(rest, bytes);
    for (const Point& point : rest->points)
      if (!order_.ordered(point, slot)) block->points.push_back(point);
    if (rest->held) {
      rest->held = rest->live = false;
      coalesce(rest);
    }
  } else {
    if (!block->held) delist(block);
    order_.prune(block->points, slot);
  }
  block->held = false;
  block->live = true;
  block->slot = slot;
  block->requested = requested;
  return block;
}

Block* Pool::release(Block* block) {
  block->live = block->moved = block->lost = block->leaving = false;
  if (block->used_on) block->used_on.reset();
  return coalesce(block);
}

void Pool::release_pieces(Block* block, const std::vector<Piece>& pieces) {
  block->live = block->moved = block->lost = block->leaving = false;
  if (block->used_on) block->used_on.reset();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Block* rest = i + 1 < pieces.size() ? split(block, pieces[i].end) : nullptr;
    if (rest) rest->held = true;  // not to be merged before it has its own key
    block->held = false;
    block->key = moved_to(block->key, pieces[i].place);
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

void Pool::put_back(std::uint64_t begin, std::uint64_t bytes, KeyId key) {
  Block* block = make(begin, bytes);
  block->key = key;
  link_neighbours(block);
  coalesce(block);
}

Block* Pool::tail(KeyId key, Slot slot, Slot graph) {
  const std::uint64_t end = top(key);
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
  coalesce(block);  // a neighbour may have been freed meanwhile
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

Block* Pool::hold_range(std::uint64_t begin, std::uint64_t end) {
  Block* block = isolate(at(begin), begin, end);
  while (block->end() < end) {
    isolate(block->next, begin, end);
    absorb_next(block);
  }
  block->held = true;
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
    KeyId key = moved_to(block->key, place);
    if (block->key == key) continue;
    block = isolate(block, begin, end);
    block->key = key;
    offset = coalesce(block)->end();
  }
}

void Pool::retire(std::uint32_t tag, Point over) {
  for (KeyId key = key_of(tag, Place::kDevice); key < key_of(tag + 1, Place::kDevice) && key < lists_.size(); ++key) lists_[key].top = 0;
  for_each([&](Block& block) {
    if (tag_of(block.key) != tag) return;
    if (!block.live) delist(&block);
    if (block.live && block.asked_tag == tag) block.asked_tag = 0;
    block.key = key_of(0, place_of(block.key), is_small(block.key));
    const std::size_t before = block.points.size();
    block.points.remove_if([&](const Point& point) { return order_.is_graph(point.slot()); });
    if (block.points.size() < before) block.points.add(over);
    if (!block.live) coalesce(&block);
  });
}

std::uint64_t Pool::live_bytes_in(std::uint64_t begin, std::uint64_t end) {
  std::uint64_t bytes = 0;
  for (Block* block = at(begin); block && block->begin < end; block = block->next)
    if (block->live) bytes += std::min(end, block->end()) - std::max(begin, block->begin);
  return bytes;
}

void Pool::tidy() {
  order_.take_news(news_);
  for (Slot slot : news_) {
    if (slot >= lines_.size()) continue;
    while (Block* block = lines_[slot].front) {
      if (!order_.complete(block->points[0])) break;
      delist(block);
      coalesce(block);
    }
  }
}

bool Pool::check(std::string* why) {
  std::uint64_t pending = 0;
  bool ok = true;
  for_each([&](Block& block) {
    auto bad = [&](const char* what) {
      if (ok) *why = std::string(what) + " at offset " + std::to_string(block.begin);
      ok = false;
    };
    if (at(block.begin) != &block || at(block.end() - 1) != &block || starting_at(block.begin) != &block)
      bad("the index misses a block");
    if (block.next && (block.next->prev != &block || block.next->begin != block.end())) bad("a broken neighbour link");
    if (block.begin % kGranularity || block.bytes % kGranularity) bad("an unaligned block");
    if (block.live) {
      if (block.requested > block.bytes) bad("a block smaller than was asked");
      if (block.older || block.newer) bad("a live block in a line");
      if (block.held) bad("a live block held");
      return;
    }
    if (block.held) bad("a block left held");
    if (block.used_on) bad("a free block in use on a stream");
    if (block.list != list_of(block.points)) bad("a free block in the wrong list");
    if (block.bin != &bin(block.key, block.list)) bad("a free block in another list than it says");
    if (block.list == kMixed) pending += block.bytes;
    if (block.next && !block.next->live && block.next->key == block.key && block.next->list == block.list)
      bad("two free neighbours that are not coalesced");
  });
  if (ok && pending != pending_bytes_) {
    *why = "pending bytes are miscounted";
    ok = false;
  }
  return ok && check_lines(why);
}

// Every block with points is in the line of its first, and nothing else is in any.
bool Pool::check_lines(std::string* why) {
  std::size_t waiting = 0, in_line = 0;
  for_each([&](const Block& block) { waiting += !block.live && !block.points.empty(); });
  for (Slot slot = 0; slot < lines_.size(); ++slot) {
    const Block* last = nullptr;
    for (const Block* block = lines_[slot].front; block; last = block, block = block->newer) {
      if (block->older != last || block->live || block->points.empty() || block->points[0].slot() != slot || in_line > waiting) {
        *why = "a broken line of waiting blocks";
        return false;
      }
      ++in_line;
    }
    if (lines_[slot].back != last) {
      *why = "a line of waiting blocks without its end";
      return false;
    }
  }
  if (waiting != in_line) *why = "a waiting block that is in no line";
  return waiting == in_line;
}

}  // namespace memx
