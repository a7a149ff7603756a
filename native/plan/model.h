// The problem as the search and the decoder work on it: offsets in whole units, buffers ordered by start.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "problem.h"

namespace memx::plan {

using Units = std::int64_t;
inline constexpr Units kNever = std::numeric_limits<Units>::max() / 4;

// Rows of indices, all in one array.
class Rows {
 public:
  void reserve(std::size_t rows, std::size_t entries) {
    begin_.reserve(rows + 1);
    entries_.reserve(entries);
  }
  void add(Index value) { entries_.push_back(value); }
  void end_row() { begin_.push_back(entries_.size()); }
  std::span<const Index> operator[](std::size_t row) const {
    return {entries_.data() + begin_[row], entries_.data() + begin_[row + 1]};
  }

 private:
  std::vector<std::size_t> begin_{0};
  std::vector<Index> entries_;
};

// Some lowest layout has every offset at a multiple of `unit` (drop each buffer onto those below it), so what
// lies on a buffer finds its size rounded up to whole units. The top of a layout is in bytes.
struct Model {
  explicit Model(const Problem& problem);

  // Whether it is small enough to build: it holds all pairs that are alive together.
  static bool affordable(const Problem& problem);

  std::size_t count() const { return size.size(); }

  // Whether what lies below a buffer may as well lie above it, as far as offsets and tops go.
  bool sinks(Index b) const { return plain && bytes[b] == size[b] * unit; }

  // The nearest heights that a layout can have: no lower, no higher than `height`.
  Bytes height_from(Bytes height) const;
  Bytes height_within(Bytes height) const;

  // The lowest offset at or above `offset` that alignment and fixed buffers allow; kNever: none.
  Units lift(Index b, Units offset) const {
    return plain ? offset : lift_around(b, offset);
  }

  std::vector<Index> original;           // index in the problem
  std::vector<Index> first, last;        // sections, ascending in `first`
  std::vector<Index> begin_of;           // [s]: the first buffer that starts in section s or later
  std::vector<Units> size, alignment, fixed;
  std::vector<Bytes> bytes;              // the size, not rounded
  std::vector<Units> load;
  Rows neighbours;                       // [b]: those alive with b
  Rows cover;                            // [s]: those alive in section s
  Index sections = 0;
  Bytes unit = 1;
  bool plain = true;                     // no alignment beyond a unit, nothing fixed

 private:
  Units lift_around(Index b, Units offset) const;
  std::vector<Bytes> ends_;              // of sizes in their last unit, in (0, unit], ascending
  Rows obstacles_;                       // [b]: fixed buffers alive with b, ascending in offset
};

}  // namespace memx::plan
