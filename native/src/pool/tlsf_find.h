#pragma once

#include "memx/pool.h"
#include "memx/tlsf.h"

namespace memx {

template <class Accept>
Block* SizeClasses::find(std::uint64_t bytes, unsigned probes, Accept accept) const {
  Class c = class_of(bytes);
  for (bool own_class = true;; own_class = false) {
    if (!own_class) {
      std::uint32_t upper = c.second + 1 < kSub ? second_level_[c.first] & (~0u << (c.second + 1)) : 0;
      if (!upper) {
        std::uint64_t above = c.first + 1 < 64 ? first_level_ & (~0ull << (c.first + 1)) : 0;
        if (!above) return nullptr;
        c.first = static_cast<unsigned>(std::countr_zero(above));
        upper = second_level_[c.first];
      }
      c.second = static_cast<unsigned>(std::countr_zero(upper));
    }
    Block* best = nullptr;
    for (Block* block = heads_[c.first][c.second]; block; block = block->list_next) {
      if (block->bytes >= bytes && (!best || block->bytes < best->bytes) && accept(block)) {
        best = block;
        if (block->bytes == bytes) return best;
      }
      if (probes-- == 0) return best;
    }
    if (best) return best;
  }
}

}  // namespace memx
