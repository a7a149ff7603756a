#include "gaps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace memx::plan::migration {

Load::Load(std::vector<Bytes> bytes) : length_(std::max<Index>(1, static_cast<Index>(bytes.size()))) {
  bytes.resize(length_);
  most_.assign(4 * static_cast<std::size_t>(length_), 0);
  added_ = most_;
  for (Index i = 0; i < length_; ++i)
    if (bytes[i]) add(i, i + 1, bytes[i]);
}

void Load::add(Index from, Index to, Bytes bytes) {
  if (from < to) add(1, 0, length_, from, to, bytes);
}

Bytes Load::most(Index from, Index to) const { return from < to ? most(1, 0, length_, from, to) : 0; }

void Load::add(Index node, Index low, Index high, Index from, Index to, Bytes bytes) {
  if (from <= low && high <= to) {
    most_[node] += bytes, added_[node] += bytes;
    return;
  }
  const Index mid = (low + high) / 2;
  if (from < mid) add(2 * node, low, mid, from, to, bytes);
  if (to > mid) add(2 * node + 1, mid, high, from, to, bytes);
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

Bytes Load::most(Index node, Index low, Index high, Index from, Index to) const {
  if (from <= low && high <= to) return most_[node];
  const Index mid = (low + high) / 2;
  Bytes found = INT64_MIN;
  if (from < mid) found = most(2 * node, low, mid, from, to);
  if (to > mid) found = std::max(found, most(2 * node + 1, mid, high, from, to));
  return found + added_[node];
}

namespace {

std::vector<Bytes> group_bytes(const Accesses& problem, std::span<const Index> accesses) {
  std::vector<Bytes> bytes;
  Index step = -1;
  for (const Index k : accesses) {
    if (problem.step[k] != step) bytes.push_back(0), step = problem.step[k];
    bytes.back() += problem.size[problem.object[k]];
  }
  return bytes;
}

}  // namespace

Gaps::Gaps(const Accesses& problem, std::span<const Index> accesses, Bytes capacity)
    : capacity_(capacity), load_(group_bytes(problem, accesses)) {
  std::vector<Index> group(problem.objects(), -1), epoch(problem.objects(), -1);
  Index step = -1, now = -1;
  for (const Index k : accesses) {
    if (problem.step[k] != step) ++now, step = problem.step[k];
    const Index o = problem.object[k];
    if (problem.first[k]) epoch[o] = -1;
    if (problem.returns[k] && group[o] + 1 < now)
      gaps_.push_back({k, group[o] + 1, now, problem.size[o], epoch[o]});
    if (problem.writes[k]) {
      epoch[o] = problem.owes[k] ? static_cast<Index>(dropped_in_.size()) : -1;
      if (problem.owes[k]) dropped_in_.push_back(0);
    }
    group[o] = now;
  }
  kept_.assign(gaps_.size(), 1);
  for (const Gap& gap : gaps_) load_.add(gap.from, gap.to, gap.bytes);
  drop_all();
}

void Gaps::keep(std::size_t g) {
  const Gap& gap = gaps_[g];
  load_.add(gap.from, gap.to, gap.bytes);
  kept_[g] = 1;
  cost_ -= gap.bytes;
  if (gap.epoch >= 0 && --dropped_in_[gap.epoch] == 0) cost_ -= gap.bytes;
}

void Gaps::drop(std::size_t g) {
  const Gap& gap = gaps_[g];
  load_.add(gap.from, gap.to, -gap.bytes);
  kept_[g] = 0;
  cost_ += gap.bytes;
  if (gap.epoch >= 0 && dropped_in_[gap.epoch]++ == 0) cost_ += gap.bytes;
}

void Gaps::drop_all() {
  for (std::size_t g = 0; g < gaps_.size(); ++g)
    if (kept_[g]) drop(g);
}

Bytes Gaps::gain(std::size_t g) const {
  const Gap& gap = gaps_[g];
  return gap.epoch >= 0 && dropped_in_[gap.epoch] == 1 ? 2 * gap.bytes : gap.bytes;
}

void Gaps::start(std::span<const std::uint8_t> dropped) {
  std::vector<double> priority(dropped.size());
  for (const Gap& gap : gaps_) {
    const double density = 1.0 / static_cast<double>(gap.to - gap.from);
    priority[gap.access] = dropped[gap.access] ? density : 2 + density;
  }
  fill(priority);
}

void Gaps::fill(std::span<const double> priority) {
  drop_all();
  std::vector<std::size_t> order(gaps_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return priority[gaps_[a].access] > priority[gaps_[b].access];
  });
  for (const std::size_t g : order)
    if (room(gaps_[g])) keep(g);
}

void Gaps::improve(std::int64_t rounds, Bytes goal, Random& random, Stop& stop) {
  if (gaps_.empty()) return;
  std::vector<std::size_t> dropped, removed, added;
  std::vector<std::pair<double, std::size_t>> order;
  const double warmth = static_cast<double>(cost_) / 200, cold = warmth / 1000;
  std::vector<std::uint8_t> best = kept_;
  Bytes least = cost_;
  for (std::int64_t round = 0; round < rounds && least > goal && !stop.now(); ++round) {
    dropped.clear();
    for (std::size_t g = 0; g < gaps_.size(); ++g)
      if (!kept_[g]) dropped.push_back(g);
    if (dropped.empty()) break;
    const Bytes before = cost_;
    const std::size_t chosen = dropped[random.below(dropped.size())];
    const Gap& wanted = gaps_[chosen];
    removed.clear(), added.clear(), order.clear();
    // What is in the way goes, what costs least for the overlap first, more or less.
    for (std::size_t g = 0; g < gaps_.size(); ++g) {
      const Gap& gap = gaps_[g];
      if (!kept_[g] || gap.from >= wanted.to || gap.to <= wanted.from) continue;
      const double price = gap.epoch >= 0 && dropped_in_[gap.epoch] == 0 ? 2 : 1;
      const Index overlap = std::min(gap.to, wanted.to) - std::max(gap.from, wanted.from);
      order.emplace_back(price / overlap * (0.5 + random.uniform()), g);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [price, g] : order) {
      if (room(wanted)) break;
      const Gap& gap = gaps_[g];
      // Only where it helps.
      const Bytes most = load_.most(std::max(gap.from, wanted.from), std::min(gap.to, wanted.to));
      if (most + wanted.bytes <= capacity_) continue;
      drop(g);
      removed.push_back(g);
    }
    if (room(wanted)) keep(chosen), added.push_back(chosen);
    order.clear();
    for (const auto& list : {dropped, removed})
      for (const std::size_t g : list)
        if (!kept_[g])
          order.emplace_back(static_cast<double>(gain(g)) / static_cast<double>(gaps_[g].bytes) /
                                 static_cast<double>(gaps_[g].to - gaps_[g].from) * (0.3 + random.uniform()),
                             g);
    std::sort(order.rbegin(), order.rend());
    for (const auto& [value, g] : order)
      if (room(gaps_[g])) keep(g), added.push_back(g);
    const double heat = warmth * std::pow(cold / warmth, static_cast<double>(round) / static_cast<double>(rounds));
    if (cost_ > before && random.uniform() >= std::exp(static_cast<double>(before - cost_) / heat)) {
      for (const std::size_t g : added)
        if (kept_[g]) drop(g);
      for (const std::size_t g : removed)
        if (!kept_[g]) keep(g);
    } else if (cost_ < least) {
      least = cost_, best = kept_;
    }
  }
  for (std::size_t g = 0; g < gaps_.size(); ++g)
    if (kept_[g] && !best[g]) drop(g);
  for (std::size_t g = 0; g < gaps_.size(); ++g)
    if (!kept_[g] && best[g]) keep(g);
}

void Gaps::write(std::vector<std::uint8_t>& dropped) const {
  for (std::size_t g = 0; g < gaps_.size(); ++g) dropped[gaps_[g].access] = !kept_[g];
}

}  // namespace memx::plan::migration
