#include <bit>

#include "memx/block.h"

namespace memx {

BlockIndex::BlockIndex(std::uint64_t reservation_bytes) : granules_(reservation_bytes / kGranularity) {
  std::uint64_t words = granules_;
  for (auto& level : bits_) {
    words = (words + 63) / 64;
    level = std::make_unique<SparseArray<std::uint64_t>>(words);
  }
  grow();
}

void BlockIndex::grow() {
  std::vector<Entry> before(table_.empty() ? 4096 : 2 * table_.size());
  before.swap(table_);
  mask_ = table_.size() - 1;
  shift_ = 64u - static_cast<unsigned>(std::countr_zero(table_.size()));
  for (const Entry& entry : before) {
    if (!entry.block) continue;
    std::size_t i = home(entry.begin);
    while (table_[i].block) i = (i + 1) & mask_;
    table_[i] = entry;
  }
}

void BlockIndex::insert(Block* block) {
  if (2 * ++count_ > table_.size()) grow();
  std::size_t i = home(block->begin);
  while (table_[i].block) i = (i + 1) & mask_;
  table_[i] = {block->begin, block};
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
    if (!table_[i].block) break;
    if (((i - home(table_[i].begin)) & mask_) < ((i - hole) & mask_)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = {};
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
