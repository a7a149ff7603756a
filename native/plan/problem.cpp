#include "problem.h"

#include <algorithm>
#include <set>

namespace memx::plan {

namespace {

struct Moment {
  std::int64_t time;
  Index code;  // a death of buffer b is b, a birth n + b: deaths come first
};

}  // namespace

Problem::Problem(std::span<const std::int64_t> lower, std::span<const std::int64_t> upper,
                 std::span<const Bytes> size_, std::span<const Bytes> alignment_, std::span<const Bytes> fixed_)
    : size(size_.begin(), size_.end()),
      alignment(alignment_.begin(), alignment_.end()),
      fixed(fixed_.begin(), fixed_.end()) {
  const Index n = static_cast<Index>(size.size());
  first.resize(n);
  last.resize(n);
  by_start.reserve(n);
  duration.reserve(n);

  std::vector<Moment> moments;
  moments.reserve(2 * static_cast<std::size_t>(n));
  Bytes unit = 0;
  for (Index b = 0; b < n; ++b) {
    moments.push_back({lower[b], n + b});
    moments.push_back({upper[b], b});
    duration.push_back(upper[b] - lower[b]);
    unit = std::gcd(unit, alignment[b]);
    any_fixed = any_fixed || fixed[b] != kFree;
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.code < b.code;
  });

  // Every offset is a multiple of `unit`, so in a section all but the topmost buffer cost whole units.
  std::multiset<Bytes> padding;
  Bytes live = 0, live_units = 0;
  std::int64_t alive = 0;
  bool growing = false;
  for (const Moment& m : moments) {
    const bool birth = m.code >= n;
    const Index b = birth ? m.code - n : m.code;
    const Bytes padded = align_up(size[b], unit);
    if (birth) {
      if (!growing) {
        ++sections;
        load.push_back(0);
      }
      growing = true;
      first[b] = sections - 1;
      by_start.push_back(b);
      live += size[b];
      live_units += padded;
      pairs += alive++;
      load.back() = live;
      if (unit > 1) padding.insert(padded - size[b]);
      const Bytes wasted = unit > 1 ? live_units - *padding.rbegin() : live;
      bound = std::max(bound, wasted);
    } else {
      growing = false;
      last[b] = sections - 1;
      live -= size[b];
      live_units -= padded;
      --alive;
      if (unit > 1) padding.erase(padding.find(padded - size[b]));
    }
    if (birth && fixed[b] != kFree) bound = std::max(bound, fixed[b] + size[b]);
  }
}

}  // namespace memx::plan
