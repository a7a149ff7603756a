// A layout problem as the planner's loops see it: buffers over sections instead of over time.
//
// Time is cut into sections, the maximal sets of buffers alive together. A buffer covers the sections
// [first, last]; two buffers are alive together exactly if they share a section.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace memx::plan {

using Bytes = std::int64_t;
using Index = std::int32_t;

inline constexpr Bytes kFree = -1;  // `fixed` of a buffer that may go anywhere

inline Bytes align_up(Bytes offset, Bytes alignment) {
  if (alignment == 1) return offset;
  const Bytes over = offset % alignment;
  return over == 0 ? offset : offset + (alignment - over);
}

struct Problem {
  // Lifetimes are half open and not empty, sizes positive, alignments at least 1.
  Problem(std::span<const std::int64_t> lower, std::span<const std::int64_t> upper,
          std::span<const Bytes> size, std::span<const Bytes> alignment, std::span<const Bytes> fixed);

  std::size_t count() const { return size.size(); }
  bool together(Index a, Index b) const { return first[a] <= last[b] && first[b] <= last[a]; }

  std::vector<Index> first, last;
  std::vector<Bytes> size, alignment, fixed;
  std::vector<std::int64_t> duration;
  std::vector<Index> by_start;  // buffers ordered by first section

  Index sections = 0;
  std::vector<Bytes> load;      // bytes alive in each section
  Bytes bound = 0;              // no layout is lower: the load, with what alignment must waste
  std::int64_t pairs = 0;       // buffers alive together, counted once a pair
  bool any_fixed = false;
};

}  // namespace memx::plan
