// Free blocks by size: two-level segregated lists with bitmaps (Masmano et al., "TLSF: a new dynamic memory
// allocator for real-time systems", ECRTS 2004). Insert and remove are O(1); the search looks at a bounded number
// of blocks of the request's own class, then takes any of the next class that has one.
#pragma once

#include <bit>
#include <cstdint>

namespace memx {

struct Block;

class SizeClasses {
 public:
  void insert(Block* block);
  void remove(Block* block);
  bool empty() const { return first_level_ == 0; }

  // The best of a few blocks of at least `bytes` that `accept`s; null if none is found within `probes` looks.
  template <class Accept>
  Block* find(std::uint64_t bytes, unsigned probes, Accept accept) const;

 private:
  static constexpr unsigned kUnitBits = 9;  // sizes are multiples of 512 bytes
  static constexpr unsigned kSubBits = 4;
  static constexpr unsigned kSub = 1u << kSubBits;
  static constexpr unsigned kFirst = 48;
  struct Class {
    unsigned first, second;
  };
  static Class class_of(std::uint64_t bytes) {
    std::uint64_t units = bytes >> kUnitBits;
    if (units < kSub) return {0, static_cast<unsigned>(units)};
    unsigned log = 63u - static_cast<unsigned>(std::countl_zero(units));
    return {log - kSubBits + 1, static_cast<unsigned>(units >> (log - kSubBits)) & (kSub - 1)};
  }
  std::uint64_t first_level_ = 0;
  std::uint32_t second_level_[kFirst] = {};
  Block* heads_[kFirst][kSub] = {};
};

}  // namespace memx
