#include "model.h"

#include <algorithm>

namespace memx::plan {

namespace {

constexpr std::int64_t kMostPairs = 4'000'000;
constexpr std::int64_t kMostSteps = 50'000'000;  // a descent looks at all sections for each buffer

Bytes common_unit(const Problem& problem) {
  Bytes of_alignments = 0;
  for (const Bytes a : problem.alignment) of_alignments = std::gcd(of_alignments, a);
  Bytes unit = 0;
  for (const Bytes s : problem.size) unit = std::gcd(unit, align_up(s, of_alignments));
  for (const Bytes f : problem.fixed) {
    if (f != kFree) unit = std::gcd(unit, f);
  }
  const Bytes of_sizes = unit;
  for (const Bytes a : problem.alignment) {
    if (of_sizes % a != 0) unit = std::gcd(unit, a);
  }
  return unit;
}

}  // namespace

bool Model::affordable(const Problem& problem) {
  std::int64_t covered = 0;
  for (std::size_t b = 0; b < problem.count(); ++b) covered += problem.last[b] - problem.first[b] + 1;
  const auto steps = static_cast<std::int64_t>(problem.count()) * problem.sections;
  return steps <= kMostSteps && problem.pairs <= kMostPairs && covered <= kMostPairs;
}

Model::Model(const Problem& problem)
    : original(problem.by_start), sections(problem.sections), unit(common_unit(problem)) {
  const auto n = static_cast<Index>(problem.count());
  load.assign(sections, 0);
  begin_of.assign(sections + 1, n);
  for (Index b = 0; b < n; ++b) {
    const Index o = original[b];
    first.push_back(problem.first[o]);
    last.push_back(problem.last[o]);
    bytes.push_back(problem.size[o]);
    size.push_back((problem.size[o] + unit - 1) / unit);
    ends_.push_back((problem.size[o] - 1) % unit + 1);
    alignment.push_back(problem.alignment[o] % unit == 0 ? problem.alignment[o] / unit : 1);
    fixed.push_back(problem.fixed[o] == kFree ? kFree : problem.fixed[o] / unit);
    plain = plain && alignment[b] == 1 && fixed[b] == kFree;
    begin_of[first[b]] = std::min(begin_of[first[b]], b);
    for (Index s = first[b]; s <= last[b]; ++s) load[s] += size[b];
  }
  for (Index s = sections; s-- > 0;) begin_of[s] = std::min(begin_of[s], begin_of[s + 1]);

  std::sort(ends_.begin(), ends_.end());
  ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());

  std::vector<std::vector<Index>> meets(n), alive(sections);
  std::vector<Index> current;
  for (Index b = 0; b < n; ++b) {
    std::erase_if(current, [&](Index c) { return last[c] < first[b]; });
    for (const Index c : current) {
      meets[c].push_back(b);
      meets[b].push_back(c);
    }
    current.push_back(b);
    for (Index s = first[b]; s <= last[b]; ++s) alive[s].push_back(b);
  }
  for (Index b = 0; b < n; ++b) {
    for (const Index c : meets[b]) neighbours.add(c);
    neighbours.end_row();
    std::vector<Index> fixed_here;
    std::copy_if(meets[b].begin(), meets[b].end(), std::back_inserter(fixed_here),
                 [&](Index c) { return fixed[c] != kFree; });
    std::sort(fixed_here.begin(), fixed_here.end(), [&](Index x, Index y) { return fixed[x] < fixed[y]; });
    for (const Index c : fixed_here) obstacles_.add(c);
    obstacles_.end_row();
  }
  for (Index s = 0; s < sections; ++s) {
    for (const Index b : alive[s]) cover.add(b);
    cover.end_row();
  }
}

Bytes Model::height_from(Bytes height) const {
  if (height <= 0) return 0;
  const Bytes whole = (height - 1) / unit * unit;
  const auto end = std::lower_bound(ends_.begin(), ends_.end(), height - whole);
  return end != ends_.end() ? whole + *end : whole + unit + ends_.front();
}

Bytes Model::height_within(Bytes height) const {
  if (height <= 0) return 0;
  const Bytes whole = (height - 1) / unit * unit;
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), height - whole);
  if (end != ends_.begin()) return whole + *std::prev(end);
  return whole == 0 ? 0 : whole - unit + ends_.back();
}

Units Model::lift_around(Index b, Units offset) const {
  if (fixed[b] != kFree) return offset <= fixed[b] ? fixed[b] : kNever;
  offset = align_up(offset, alignment[b]);
  for (const Index c : obstacles_[b]) {
    const Units end = fixed[c] + size[c];
    if (offset < end && offset + size[b] > fixed[c]) offset = align_up(end, alignment[b]);
  }
  return offset;
}

}  // namespace memx::plan
