// Free blocks by size: two-level segregated lists with bitmaps (Masmano et al., "TLSF: a new dynamic memory
// allocator for real-time systems", ECRTS 2004). Insert and remove are O(1); the search looks at a bounded number
// of blocks of the request's own class, then takes one of the next class that has one.
#pragma once

#include <bit>
#include <cstdint>

#include "memx/block.h"

namespace memx {

class SizeClasses {
 public:
  void insert(Block* block) {
    const unsigned c = class_of(block->bytes);
    Block*& head = heads_[c];
    block->list_prev = nullptr;
    block->list_next = head;
    if (head) {
      head->list_prev = block;
    } else {
      second_level_[c / kSub] |= 1u << c % kSub;
      first_level_ |= 1ull << c / kSub;
    }
    head = block;
  }
  void remove(Block* block) {
    Block* const before = block->list_prev;
    Block* const after = block->list_next;
    if (after) after->list_prev = before;
    if (before) {
      before->list_next = after;
      return;
    }
    const unsigned c = class_of(block->bytes);
    heads_[c] = after;
    if (after) return;
    second_level_[c / kSub] &= ~(1u << c % kSub);
    if (!second_level_[c / kSub]) first_level_ &= ~(1ull << c / kSub);
  }
  bool empty() const { return first_level_ == 0; }

  // The best of a few blocks of at least `bytes` that `accept`s; null if none is found within `probes` looks, of which
  // this takes off those it made.
  template <class Accept>
  Block* find(std::uint64_t bytes, unsigned& probes, Accept accept) const {
    unsigned c = class_of(bytes);
    unsigned own = kOwnProbes;
    Block* best = nullptr;
    for (Block* block = heads_[c]; block && probes && own; block = block->list_next, --own) {
      --probes;
      if (block->bytes < bytes || (best && best->bytes <= block->bytes) || !accept(block)) continue;
      best = block;
      if (block->bytes == bytes) break;
    }
    while (!best && next_class(c))
      for (Block* block = heads_[c]; block; block = block->list_next) {
        if (!probes) return nullptr;
        --probes;
        if (!accept(block)) continue;
        best = block;
        break;
      }
    return best;
  }

 private:
  static constexpr unsigned kUnitBits = 9;  // sizes are multiples of 512 bytes
  static constexpr unsigned kSubBits = 5;   // classes are at most 1/32 wide
  static constexpr unsigned kSub = 1u << kSubBits;
  static constexpr unsigned kFirst = 48;
  static constexpr unsigned kOwnProbes = 4;
  static unsigned class_of(std::uint64_t bytes) {
    const std::uint64_t units = bytes >> kUnitBits;
    if (units < kSub) return static_cast<unsigned>(units);
    const unsigned shift = 63u - kSubBits - static_cast<unsigned>(std::countl_zero(units));
    return shift * kSub + static_cast<unsigned>(units >> shift);
  }
  // The next one that has a block.
  bool next_class(unsigned& c) const {
    unsigned first = c / kSub;
    std::uint32_t upper = second_level_[first] & (~1u << c % kSub);
    if (!upper) {
      const std::uint64_t above = first_level_ & (~1ull << first);
      if (!above) return false;
      first = static_cast<unsigned>(std::countr_zero(above));
      upper = second_level_[first];
    }
    c = first * kSub + static_cast<unsigned>(std::countr_zero(upper));
    return true;
  }
  std::uint64_t first_level_ = 0;
  std::uint32_t second_level_[kFirst] = {};
  Block* heads_[kFirst * kSub] = {};
};

}  // namespace memx
