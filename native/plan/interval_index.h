// The placed buffers that share a section with a given one, in time near the number of answers.
//
// An implicit tree of width 16 over the buffers in order of first section holds, for each node, the last
// section any placed buffer below it covers. Unplaced buffers count as ending before everything.
#pragma once

#include <algorithm>
#include <vector>

#include "problem.h"

namespace memx::plan {

class IntervalIndex {
 public:
  explicit IntervalIndex(const Problem& problem) : problem_(problem), rank_(problem.count()) {
    const std::size_t n = problem.count();
    starts_.reserve(n);
    for (std::size_t r = 0; r < n; ++r) {
      rank_[problem.by_start[r]] = static_cast<Index>(r);
      starts_.push_back(problem.first[problem.by_start[r]]);
    }
    for (std::size_t width = n;; width = (width + 15) / 16) {
      levels_.emplace_back((width + 15) / 16 * 16, kNever);
      if (width <= 16) break;
    }
  }

  void insert(Index buffer) {
    const Index end = problem_.last[buffer];
    std::size_t node = static_cast<std::size_t>(rank_[buffer]);
    for (auto& level : levels_) {
      level[node] = std::max(level[node], end);
      node >>= 4;
    }
  }

  template <class Visit>
  void each_alive_with(Index buffer, Visit&& visit) const {
    // Ranks below `stop` start no later than the buffer ends.
    const auto stop = static_cast<std::size_t>(
        std::upper_bound(starts_.begin(), starts_.end(), problem_.last[buffer]) - starts_.begin());
    descend(levels_.size() - 1, 0, stop, problem_.first[buffer], visit);
  }

 private:
  static constexpr Index kNever = -1;

  template <class Visit>
  void descend(std::size_t depth, std::size_t group, std::size_t stop, Index from, Visit& visit) const {
    const auto& level = levels_[depth];
    const std::size_t begin = group * 16;
    for (std::size_t node = begin; node < begin + 16; ++node) {
      if ((node << (4 * depth)) >= stop) return;
      if (level[node] < from) continue;
      if (depth == 0) {
        visit(problem_.by_start[node]);
      } else {
        descend(depth - 1, node, stop, from, visit);
      }
    }
  }

  const Problem& problem_;
  std::vector<Index> rank_;
  std::vector<Index> starts_;
  std::vector<std::vector<Index>> levels_;  // [0] the buffers themselves
};

}  // namespace memx::plan
