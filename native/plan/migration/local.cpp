// Local search over assignments, and the greedy ones.
#include <algorithm>
#include <cmath>

#include "evolve.h"

namespace memx::plan::migration {

namespace {

constexpr std::size_t kSwapsTried = 4;
constexpr std::int64_t kMovesBetweenLooks = 256;

// How far a search of so many rounds is; faster than by rounds only where the time would end it first.
double progress(std::int64_t done, std::int64_t all, const Stop& stop) {
  return std::min(1.0, std::max(static_cast<double>(done) / static_cast<double>(all), 1.1 * stop.spent() - 0.1));
}

}  // namespace

void Evolution::improve(Individual& individual, int sweeps, Stop& stop) {
  Placement placement(pricer_, individual.homes);
  std::vector<Index> order = by_size_;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    const Cost before = placement.cost();
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    for (const Index o : order) {
      if (stop()) break;
      const Index home = placement.homes()[o];
      // Where nothing moves, nothing is better elsewhere.
      if (placement.cost_of(home) == Cost{}) continue;
      Index best = home;
      Cost least = placement.cost();
      for (Index s = 0; s <= reach_[o]; ++s) {
        const Cost cost = placement.with(o, s);
        if (cost < least) least = cost, best = s;
      }
      if (best != home) {
        placement.move(o, best);
        continue;
      }
      for (std::size_t t = 0; t < kSwapsTried; ++t)
        if (placement.swap_if_below(o, static_cast<Index>(random_.below(order.size())), placement.cost())) break;
    }
    if (!(placement.cost() < before) || stop.now()) break;
  }
  individual = {placement.homes(), placement.cost()};
}

void Evolution::anneal(Individual& individual, std::int64_t moves, Bytes goal, Stop& stop) {
  Placement placement(pricer_, individual.homes);
  Individual best{placement.homes(), placement.cost()};
  const std::size_t n = individual.homes.size();
  // From about the size of a usual object down: worse by that is taken often at first, hardly at the end.
  double warmth = 0;
  for (const Bytes bytes : problem_.size) warmth += static_cast<double>(bytes);
  warmth /= 4 * static_cast<double>(n);
  const double cold = warmth / 500;
  double heat = warmth;
  for (std::int64_t m = 0; m < moves && !stop() && !(best.cost <= Cost{0, goal}); ++m) {
    if (m % kMovesBetweenLooks == 0) heat = warmth * std::pow(cold / warmth, progress(m, moves, stop));
    const auto o = static_cast<Index>(random_.below(n));
    const Index home = placement.homes()[o];
    if (reach_[o] < 1 || (placement.cost_of(home) == Cost{} && random_.below(8) > 0)) continue;
    const auto segment = static_cast<Index>(random_.below(reach_[o] + 1));
    if (segment == home) continue;
    const Cost now = placement.cost(), then = placement.with(o, segment);
    if (then.excess > now.excess) continue;
    const double worse = static_cast<double>(then.moved - now.moved);
    if (then < now || random_.uniform() < std::exp(-worse / heat)) placement.move(o, segment);
    if (placement.cost() < best.cost) best = {placement.homes(), placement.cost()};
  }
  individual = std::move(best);
  improve(individual, 4, stop);
}

Individual Evolution::greedy(Order by, bool tight, Stop& stop) {
  std::vector<Index> order = by == Order::kAccess ? by_access_ : by_size_;
  if (by == Order::kTraffic) {
    const auto traffic = [&](Index o) { return problem_.size[o] * static_cast<Bytes>(problem_.of(o).size()); };
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return traffic(a) > traffic(b); });
  }
  std::vector<std::vector<Index>> lists(segments_.count());
  std::vector<Cost> costs(segments_.count());
  Individual individual{Homes(problem_.objects(), -1), {}};
  std::vector<Index> joined;
  for (const Index o : order) {
    if (stop.now()) break;
    const auto mine = problem_.of(o);
    Index best = 0;
    Cost least;
    std::size_t least_held = 0;
    for (Index s = 0; s <= reach_[o]; ++s) {
      joined.resize(lists[s].size() + mine.size());
      std::merge(lists[s].begin(), lists[s].end(), mine.begin(), mine.end(), joined.begin());
      Cost more = pricer_.price(s, joined);
      more -= costs[s];
      const bool tighter = segments_.bytes[s] < segments_.bytes[best] ||
                           (segments_.bytes[s] == segments_.bytes[best] && lists[s].size() < least_held);
      if (s == 0 || more < least || (tight && more == least && tighter)) {
        least = more, best = s, least_held = lists[s].size();
      }
    }
    joined.resize(lists[best].size() + mine.size());
    std::merge(lists[best].begin(), lists[best].end(), mine.begin(), mine.end(), joined.begin());
    lists[best] = joined;
    costs[best] += least;
    individual.homes[o] = best;
  }
  for (const Index o : order)
    if (individual.homes[o] < 0) individual.homes[o] = somewhere(individual.homes, o);
  individual.cost = pricer_.price(individual.homes);
  return individual;
}

}  // namespace memx::plan::migration
