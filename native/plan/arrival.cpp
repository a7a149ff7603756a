// Best fit in order of arrival: only the gaps of the current moment matter, so the lifetimes' overlap
// costs nothing.
#include <algorithm>
#include <map>
#include <set>

#include "greedy.h"

namespace memx::plan {

namespace {

// The gaps below the top of what is in use; above it all is free.
class Gaps {
 public:
  Bytes take(Bytes size, Bytes alignment) {
    // A gap of size + alignment - 1 holds the buffer for sure, a smaller one perhaps: look at a few of those.
    auto it = by_size_.lower_bound({size, 0});
    for (int looked = 0; it != by_size_.end() && !holds(*it, size, alignment); ++looked) {
      it = looked < kLooks ? std::next(it) : by_size_.lower_bound({size + alignment - 1, 0});
    }
    if (it != by_size_.end()) {
      const auto [length, begin] = *it;
      const Bytes offset = align_up(begin, alignment);
      remove(begin, length);
      add(begin, offset - begin);
      add(offset + size, begin + length - offset - size);
      return offset;
    }
    const Bytes offset = align_up(top_, alignment);
    add(top_, offset - top_);
    top_ = offset + size;
    return offset;
  }

  void give(Bytes begin, Bytes size) {
    Bytes end = begin + size;
    auto after = by_begin_.lower_bound(begin);
    if (after != by_begin_.end() && after->first == end) {
      end += after->second;
      after = erase(after);
    }
    if (after != by_begin_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == begin) {
        begin = before->first;
        erase(before);
      }
    }
    if (end == top_) {
      top_ = begin;
    } else {
      add(begin, end - begin);
    }
  }

 private:
  using ByBegin = std::map<Bytes, Bytes>;
  using Gap = std::pair<Bytes, Bytes>;  // length and begin
  static constexpr int kLooks = 8;

  static bool holds(const Gap& gap, Bytes size, Bytes alignment) {
    return align_up(gap.second, alignment) + size <= gap.second + gap.first;
  }

  void add(Bytes begin, Bytes length) {
    if (length == 0) return;
    by_begin_.emplace(begin, length);
    by_size_.emplace(length, begin);
  }
  void remove(Bytes begin, Bytes length) {
    by_begin_.erase(begin);
    by_size_.erase({length, begin});
  }
  ByBegin::iterator erase(ByBegin::iterator it) {
    by_size_.erase({it->second, it->first});
    return by_begin_.erase(it);
  }

  ByBegin by_begin_;
  std::set<Gap> by_size_;
  Bytes top_ = 0;
};

}  // namespace

Offsets place_by_arrival(const Problem& problem, const Stop& stop) {
  const std::size_t n = problem.count();
  std::vector<Index> by_end(problem.by_start);
  std::stable_sort(by_end.begin(), by_end.end(), [&](Index a, Index b) { return problem.last[a] < problem.last[b]; });

  Offsets result{std::vector<Bytes>(n, 0), 0, {}};
  Gaps gaps;
  std::size_t dead = 0;
  for (std::size_t r = 0; r < n && !stop.cancelled();) {
    const Index section = problem.first[problem.by_start[r]];
    for (; dead < n && problem.last[by_end[dead]] < section; ++dead) {
      gaps.give(result.at[by_end[dead]], problem.size[by_end[dead]]);
    }
    // Those born in one section are all alive in it: the largest first.
    std::vector<Index> born;
    for (; r < n && problem.first[problem.by_start[r]] == section; ++r) born.push_back(problem.by_start[r]);
    std::stable_sort(born.begin(), born.end(), [&](Index a, Index b) { return problem.size[a] > problem.size[b]; });
    for (const Index b : born) {
      result.at[b] = gaps.take(problem.size[b], problem.alignment[b]);
      result.height = std::max(result.height, result.at[b] + problem.size[b]);
    }
  }
  return result;
}

}  // namespace memx::plan
