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

// What shares pages: a tag's small blocks, or its large ones, in one place; those filled from a source apart.
using KeyId = std::uint32_t;
inline KeyId key_of(std::uint32_t tag, Place place, bool small = false, bool refilled = false) {
  return tag * 16 + (refilled ? 8 : 0) + (small ? 4 : 0) + static_cast<KeyId>(place);
}
inline Place place_of(KeyId key) { return static_cast<Place>(key % 4); }
inline bool is_small(KeyId key) { return key & 4; }
inline bool is_refilled(KeyId key) { return key & 8; }
inline std::uint32_t tag_of(KeyId key) { return key / 16; }
inline KeyId moved_to(KeyId key, Place place) { return key - key % 4 + static_cast<KeyId>(place); }
inline KeyId other_size(KeyId key) { return key ^ 4; }

class SizeClasses;

// Two cache lines; what a search and a merge look at is in the first.
struct alignas(128) Block {
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
  bool known : 1 = false;    // live: the store knows more of it (see Store::Extra)

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

// Blocks by where they begin, and by any byte of them, in O(1): a hash table beside a tree of bitmaps. An entry of the
// table is one word: a part of the hash, and where the block is, which says where it begins.
class BlockIndex {
 public:
  explicit BlockIndex(std::uint64_t reservation_bytes);
  void insert(Block* block);
  void remove(const Block* block);
  void replace(const Block* block, Block* by) { table()[place_of(block)] = entry(by); }  // where both begin
  Block* starting_at(std::uint64_t offset) const {
    const std::uint64_t hash = hash_of(offset);
    for (std::size_t i = home(hash);; i = (i + 1) & mask_) {
      const std::uint64_t known = table()[i];
      if (!known) return nullptr;
      if (known % kHashes != hash) continue;
      if (Block* block = block_of(known); block->begin == offset) return block;
    }
  }
  Block* at(std::uint64_t offset) const;  // the block that covers it

 private:
  static constexpr int kLevels = 6;
  // Blocks lie at multiples of 128 in an address space of 48 bits: 41 bits say where.
  static constexpr unsigned kHashBits = 23, kAlignBits = 7;
  static constexpr std::uint64_t kHashes = 1ull << kHashBits;

  std::uint64_t* table() const { return memory_.as<std::uint64_t>(); }
  std::size_t size() const { return mask_ + 1; }
  static std::uint64_t hash_of(std::uint64_t begin) { return (begin / kGranularity * 0x9E3779B97F4A7C15ull) >> (64 - kHashBits); }
  static Block* block_of(std::uint64_t entry) { return reinterpret_cast<Block*>(entry >> kHashBits << kAlignBits); }
  static std::uint64_t entry(Block* block) {
    return reinterpret_cast<std::uintptr_t>(block) >> kAlignBits << kHashBits | hash_of(block->begin);
  }
  std::size_t home(std::uint64_t hash) const { return (hash << kHashBits) >> shift_; }
  std::size_t place_of(const Block* block) const {
    std::size_t i = home(hash_of(block->begin));
    while (block_of(table()[i]) != block) i = (i + 1) & mask_;
    return i;
  }
  void set_size(std::size_t entries);
  void enter(std::uint64_t entry);
  void grow();

  std::uint64_t granules_;
  HugeMemory memory_;
  std::size_t mask_ = 0, count_ = 0;
  unsigned shift_ = 0;
  std::unique_ptr<SparseArray<std::uint64_t>> bits_[kLevels];  // level 0: one bit a granule that a block begins at
};

}  // namespace memx
