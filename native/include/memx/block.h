// A block: a run of bytes that a caller holds or that is free, and the index that finds it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memx/points.h"
#include "memx/sparse.h"

namespace memx {

constexpr std::uint64_t kGranularity = 512;

// What a block's pages are, as far as reuse goes. A lazy resource has only kLazy: there the pages come later.
enum class Place : std::uint8_t { kDevice, kHost, kUnbacked, kLazy };

// What shares pages: a tag's small blocks, or its large ones, in one place.
using KeyId = std::uint32_t;
inline KeyId key_of(std::uint32_t tag, Place place, bool small = false) { return tag * 8 + (small ? 4 : 0) + static_cast<KeyId>(place); }
inline Place place_of(KeyId key) { return static_cast<Place>(key % 4); }
inline bool is_small(KeyId key) { return key % 8 >= 4; }
inline std::uint32_t tag_of(KeyId key) { return key / 8; }
inline KeyId moved_to(KeyId key, Place place) { return key - key % 4 + static_cast<KeyId>(place); }
inline KeyId other_size(KeyId key) { return key ^ 4; }

class SizeClasses;

// Two cache lines; what a search and a merge look at is in the first.
struct alignas(64) Block {
  std::uint64_t begin = 0;  // bytes from the start of the reservation
  std::uint64_t bytes = 0;
  Block* prev = nullptr;  // neighbours by address, null at the edge of a range
  Block* next = nullptr;
  Block* list_prev = nullptr;  // of free blocks: others of the same size class
  Block* list_next = nullptr;
  KeyId key = 0;
  union {
    std::uint32_t list = 0;   // of free blocks
    std::uint32_t asked_tag;  // of live blocks: the caller's, which is not the key's where a plan placed it
  };
  Slot slot = 0;           // of live blocks: the allocation's stream
  std::uint32_t pins : 24 = 0;
  bool live : 1 = false;
  bool held : 1 = false;   // free: taken out of its list by a request in progress
  bool moved : 1 = false;  // live: some of its pages changed tier since
  bool lost : 1 = false;   // live: a failed move destroyed some of its contents
  bool leaving : 1 = false;  // live: being freed

  union {
    std::uint64_t requested = 0;  // of live blocks
    SizeClasses* bin;             // of listed ones
  };
  PointSet points;  // free: what the next owner must come after; live: what it inherited unresolved
  std::unique_ptr<SmallVector<Slot, 4>> used_on;  // of live blocks: other streams, until its free
  // Of free blocks with points: others that wait for the same stream, by number.
  Block* older = nullptr;
  Block* newer = nullptr;

  std::uint64_t end() const { return begin + bytes; }
};
static_assert(sizeof(Block) == 128);

// Blocks by where they begin, and by any byte of them, in O(1): a hash table beside a tree of bitmaps.
class BlockIndex {
 public:
  explicit BlockIndex(std::uint64_t reservation_bytes);
  void insert(Block* block);
  void remove(const Block* block);
  void replace(const Block* block, Block* by) { table_[place_of(block)].block = by; }  // where both begin
  Block* starting_at(std::uint64_t offset) const {
    if (offset % kGranularity) return nullptr;
    for (std::size_t i = home(offset);; i = (i + 1) & mask_) {
      const Entry& entry = table_[i];
      if (!entry.block || entry.begin == offset) return entry.block;
    }
  }
  Block* at(std::uint64_t offset) const;  // the block that covers it

 private:
  struct Entry {
    std::uint64_t begin = 0;
    Block* block = nullptr;
  };
  static constexpr int kLevels = 6;
  std::size_t home(std::uint64_t begin) const { return ((begin / kGranularity) * 0x9E3779B97F4A7C15ull) >> shift_; }
  std::size_t place_of(const Block* block) const {
    std::size_t i = home(block->begin);
    while (table_[i].begin != block->begin || !table_[i].block) i = (i + 1) & mask_;
    return i;
  }
  void grow();

  std::uint64_t granules_;
  std::vector<Entry> table_;
  std::size_t mask_ = 0, count_ = 0;
  unsigned shift_ = 0;
  std::unique_ptr<SparseArray<std::uint64_t>> bits_[kLevels];  // level 0: one bit a granule that a block begins at
};

}  // namespace memx
