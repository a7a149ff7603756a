#include <bit>
#include <utility>

#include "memx/block.h"

namespace memx {
namespace {

constexpr std::size_t kFirstEntries = 4096;

}  // namespace

BlockIndex::BlockIndex(std::uint64_t reservation_bytes)
    : granules_(reservation_bytes / kGranularity), memory_(kFirstEntries * sizeof(std::uint64_t)) {
  std::uint64_t words = granules_;
  for (auto& level : bits_) {
    words = (words + 63) / 64;
    level = std::make_unique<SparseArray<std::uint64_t>>(words);
  }
  set_size(kFirstEntries);
}

void BlockIndex::set_size(std::size_t entries) {
  mask_ = entries - 1;
  shift_ = 2 * kHashBits - static_cast<unsigned>(std::countr_zero(entries));
}

void BlockIndex::enter(std::uint64_t entry) {
  std::size_t i = home(entry % kHashes);
  while (table()[i]) i = (i + 1) & mask_;
  table()[i] = entry;
}

void BlockIndex::grow() {
  const std::size_t entries = size();
  HugeMemory before = std::exchange(memory_, HugeMemory(2 * memory_.bytes()));
  set_size(2 * entries);
  for (std::size_t i = 0; i < entries; ++i)
    if (const std::uint64_t known = before.as<std::uint64_t>()[i]) enter(known);
}

void BlockIndex::insert(Block* block) {
  if (8 * (count_ + 1) > 5 * size()) grow();
  ++count_;
  enter(entry(block));
  std::uint64_t granule = block->begin / kGranularity;
  for (auto& level : bits_) {
    std::uint64_t& word = (*level)[granule / 64];
    const bool had = word != 0;
    word |= 1ull << (granule % 64);
    if (had) break;
    granule /= 64;
  }
}

void BlockIndex::remove(const Block* block) {
  --count_;
  std::size_t hole = place_of(block);
  // What follows moves up, unless it would get before its home.
  for (std::size_t i = hole;;) {
    i = (i + 1) & mask_;
    const std::uint64_t known = table()[i];
    if (!known) break;
    if (((i - home(known % kHashes)) & mask_) < ((i - hole) & mask_)) continue;
    table()[hole] = known;
    hole = i;
  }
  table()[hole] = 0;
  std::uint64_t granule = block->begin / kGranularity;
  for (auto& level : bits_) {
    std::uint64_t& word = (*level)[granule / 64];
    word &= ~(1ull << (granule % 64));
    if (word) break;
    granule /= 64;
  }
}

Block* BlockIndex::at(std::uint64_t offset) const {
  const std::uint64_t granule = offset / kGranularity;
  if (granule >= granules_) return nullptr;
  // Up until a word has a start at or before the granule, then down along the last one.
  std::uint64_t index = granule;
  for (int level = 0; level < kLevels; ++level) {
    const std::uint64_t bit = index % 64;
    const std::uint64_t mask = level == 0 ? (bit == 63 ? ~0ull : (1ull << (bit + 1)) - 1) : (1ull << bit) - 1;
    const std::uint64_t word = (*bits_[level])[index / 64] & mask;
    index /= 64;
    if (!word) continue;
    index = index * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero(word));
    for (int down = level - 1; down >= 0; --down)
      index = index * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero((*bits_[down])[index]));
    Block* block = starting_at(index * kGranularity);
    return block && offset < block->end() ? block : nullptr;
  }
  return nullptr;
}

}  // namespace memx
