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
  void insert(Block* block);
  void remove(Block* block);
  bool empty() const { return first_level_ == 0; }

  // The best of a few blocks of at least `bytes` that `accept`s; null if none is found within `probes` looks, of which
  // this takes off those it made.
  template <class Accept>
  Block* find(std::uint64_t bytes, unsigned& probes, Accept accept) const {
    Class c = class_of(bytes);
    unsigned own = kOwnProbes;
    Block* best = nullptr;
    for (Block* block = heads_[c.first][c.second]; block && probes && own; block = block->list_next, --own) {
      --probes;
      if (block->bytes < bytes || (best && best->bytes <= block->bytes) || !accept(block)) continue;
      best = block;
      if (block->bytes == bytes) break;
    }
    while (!best && next_class(c))
      for (Block* block = heads_[c.first][c.second]; block; block = block->list_next) {
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
  struct Class {
    unsigned first, second;
  };
  static Class class_of(std::uint64_t bytes) {
    const std::uint64_t units = bytes >> kUnitBits;
    if (units < kSub) return {0, static_cast<unsigned>(units)};
    const unsigned log = 63u - static_cast<unsigned>(std::countl_zero(units));
    return {log - kSubBits + 1, static_cast<unsigned>(units >> (log - kSubBits)) & (kSub - 1)};
  }
  // The next one that has a block.
  bool next_class(Class& c) const {
    std::uint32_t upper = c.second + 1 < kSub ? second_level_[c.first] & (~0u << (c.second + 1)) : 0;
    if (!upper) {
      const std::uint64_t above = first_level_ & (~0ull << (c.first + 1));
      if (!above) return false;
      c.first = static_cast<unsigned>(std::countr_zero(above));
      upper = second_level_[c.first];
    }
    c.second = static_cast<unsigned>(std::countr_zero(upper));
    return true;
  }
  std::uint64_t first_level_ = 0;
  std::uint32_t second_level_[kFirst] = {};
  Block* heads_[kFirst][kSub] = {};
};

}  // namespace memx
