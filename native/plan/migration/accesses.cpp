#include "accesses.h"

#include <stdexcept>

namespace memx::plan::migration {

Accesses::Accesses(std::span<const Bytes> sizes, std::span<const std::int64_t> keep,
                   std::span<const std::int64_t> objects, std::span<const std::int64_t> at,
                   std::span<const std::int64_t> modes)
    : size(sizes.begin(), sizes.end()) {
  const auto n = static_cast<Index>(size.size());
  const auto m = static_cast<Index>(objects.size());
  object.resize(m), step.resize(m), next.assign(m, -1), first.assign(m, 0), returns.assign(m, 0), writes.assign(m, 0),
      owes.assign(m, 0), wanted.assign(m, 0);
  begin.assign(n + 1, 0);
  for (Bytes bytes : size)
    if (bytes <= 0) throw std::invalid_argument("an object without bytes");
  for (Index k = 0; k < m; ++k) {
    if (objects[k] < 0 || objects[k] >= n) throw std::invalid_argument("an access to no object");
    if (at[k] < 0 || at[k] >= INT32_MAX || (k > 0 && at[k] < at[k - 1]))
      throw std::invalid_argument("steps out of order");
    object[k] = static_cast<Index>(objects[k]);
    step[k] = static_cast<Index>(at[k]);
    writes[k] = (modes[k] & kWrites) != 0;
    ++begin[object[k] + 1];
  }
  steps = m ? step[m - 1] + 1 : 0;
  for (Index o = 0; o < n; ++o) begin[o + 1] += begin[o];
  by_object.resize(m);
  std::vector<Index> filled(begin.begin(), begin.end() - 1);
  for (Index k = 0; k < m; ++k) by_object[filled[object[k]]++] = k;
  for (Index o = 0; o < n; ++o) {
    const auto mine = of(o);
    bool kept = keep[o] != 0;  // whether what is written here costs its bytes in any case
    for (std::size_t i = mine.size(); i-- > 0;) {
      const Index k = mine[i];
      if (i + 1 < mine.size()) {
        if (step[mine[i + 1]] == step[k]) throw std::invalid_argument("an object twice in one step");
        next[k] = mine[i + 1];
        wanted[k] = returns[mine[i + 1]] = (modes[mine[i + 1]] & kReads) != 0;
      }
      if (!writes[k]) continue;
      owes[k] = !kept;
      if (kept) base += size[o];
      kept = false;
    }
    if (mine.empty()) continue;
    first[mine[0]] = 1;
    if (modes[mine[0]] & kReads) base += size[o];
  }
}

}  // namespace memx::plan::migration
