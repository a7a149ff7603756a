// Cutting a job that goes through two steps, neither of which does two things at a time, so that one chunk's second step goes
// on beside the next one's first. The planner's `plan_chunks` and the store's parts are this.
//
// The rule is that of fused computation and communication in Ascend's MC2 operators: one short chunk, first where the second
// step takes longer in all, else last; the others such that their first step takes as long as the short one's second; what is
// left over spread over all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace memx {

// Sizes in the order of their work, multiples of `align` but for one that has the rest; they add up to `total`. The costs are
// functions of a size; the second one's are `conflict` times as high while a first step goes on. `most`: chunks; 0: any number.
template <class CostA, class CostB>
std::vector<std::uint64_t> balanced_chunks(std::uint64_t total, CostA cost_a, CostB cost_b, std::uint64_t shortest,
                                           std::uint64_t align = 1, std::uint64_t most = 0, double conflict = 1) {
  const std::uint64_t first = (shortest + align - 1) / align * align;
  if (first >= total || most == 1) return {total};
  const double hidden = conflict * cost_b(first), per_unit = cost_a(total) / static_cast<double>(total);
  const std::uint64_t left = total - first;
  std::uint64_t each = left;
  if (per_unit > 0)
    each = std::max(align, static_cast<std::uint64_t>(std::min(hidden / per_unit, static_cast<double>(total))) / align * align);
  std::uint64_t count = left / each;
  if (most) count = std::min(count, most - 1);
  if (count == 0) return {total};
  if (most && count == most - 1) each = std::max(each, left / count / align * align);
  const std::uint64_t rest = left - count * each, units = rest / align;
  const std::uint64_t more = units / (count + 1) * align, extra = units % (count + 1);
  std::vector<std::uint64_t> sizes(count + 1, each + more);
  sizes.front() = first + more;
  for (std::uint64_t i = 0; i < extra; ++i) sizes[count - i] += align;
  sizes.back() += rest % align;
  if (!(cost_b(total) > cost_a(total))) std::rotate(sizes.begin(), sizes.begin() + 1, sizes.end());
  return sizes;
}

}  // namespace memx
