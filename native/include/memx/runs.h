// Pages in a row.
#pragma once

#include <cstdint>
#include <vector>

namespace memx {

struct Run {
  std::uint64_t first, pages;
  std::uint64_t end() const { return first + pages; }
  bool operator==(const Run&) const = default;
};

// Pages come in ascending order.
inline void append(std::vector<Run>& runs, std::uint64_t page) {
  if (!runs.empty() && runs.back().end() == page)
    ++runs.back().pages;
  else
    runs.push_back({page, 1});
}

inline std::uint64_t pages_of(const std::vector<Run>& runs) {
  std::uint64_t pages = 0;
  for (const Run& run : runs) pages += run.pages;
  return pages;
}

}  // namespace memx
