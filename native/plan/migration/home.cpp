#include "home.h"

#include <algorithm>

namespace memx::plan::migration {

namespace {

// Up to here a segment that holds several is priced exactly, in problems of so few accesses.
constexpr Index kSmallProblem = 400;
constexpr std::size_t kFewAccesses = 96;
constexpr std::size_t kFewObjects = 16;
constexpr std::size_t kStates = 4000;
constexpr std::size_t kMostKnown = 1 << 18;

}  // namespace

Index Segments::reach(Bytes size) const {
  const auto below = std::partition_point(bytes.begin(), bytes.end(), [&](Bytes b) { return b >= size; });
  return static_cast<Index>(below - bytes.begin()) - 1;
}

Pricer::Pricer(const Accesses& problem, const Segments& segments)
    : problem(problem), segments(segments), memory_(problem), dirty_(problem.objects()), lists_(segments.count()) {
  Random random(0x5e9);
  for (Index o = 0; o < problem.objects(); ++o) name_.push_back(random.bits());
}

Cost Pricer::price(Index segment, std::span<const Index> accesses, std::vector<std::uint8_t>* dropped) {
  return segments.sharing == Sharing::kExclusive ? alone(accesses, dropped) : together(segment, accesses, dropped);
}

Cost Pricer::price(const Homes& homes) {
  for (auto& list : lists_) list.clear();
  for (Index k = 0; k < problem.count(); ++k) lists_[homes[problem.object[k]]].push_back(k);
  Cost total;
  for (Index s = 0; s < segments.count(); ++s) total += price(s, lists_[s]);
  return total;
}

// One object at a time: contents last until another object's access.
Cost Pricer::alone(std::span<const Index> accesses, std::vector<std::uint8_t>* dropped) {
  const Accesses& p = problem;
  Cost cost;
  Index holder = -1, step = -1;
  for (const Index k : accesses) {
    const Index o = p.object[k];
    if (p.first[k]) dirty_[o] = 0;
    if (o != holder) {
      if (p.step[k] == step) ++cost.excess;
      if (p.returns[k]) {
        cost.moved += p.drop_bytes(k, dirty_[o]);
        dirty_[o] = 0;
        if (dropped) (*dropped)[k] = 1;
      }
      holder = o;
    }
    if (p.writes[k]) dirty_[o] = p.owes[k];
    step = p.step[k];
  }
  return cost;
}

Cost Pricer::together(Index segment, std::span<const Index> accesses, std::vector<std::uint8_t>* dropped) {
  const Bytes capacity = segments.bytes[segment];
  std::uint64_t key = static_cast<std::uint64_t>(capacity) * 0x9e3779b97f4a7c15u;
  std::size_t objects = 0;
  for (const Index k : accesses)
    if (problem.first[k]) key ^= name_[problem.object[k]], ++objects;
  if (!dropped) {
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  Rule rule = Rule::kFurthest;
  Cost cost = memory_.run(accesses, capacity, rule);
  bool exact = false;
  if (cost.moved && !cost.excess) {
    if (problem.count() <= kSmallProblem && objects <= kFewObjects && accesses.size() <= kFewAccesses) {
      if (const auto least = memory_.least(accesses, capacity, kStates, dropped)) cost.moved = *least, exact = true;
    }
    if (!exact) {
      const Cost other = memory_.run(accesses, capacity, Rule::kCheapest);
      if (other < cost) cost = other, rule = Rule::kCheapest;
    }
  }
  if (cost.moved && !cost.excess && !exact) exact_ = false;
  if (dropped && !exact) memory_.run(accesses, capacity, rule, dropped);
  if (known_.size() >= kMostKnown) known_.clear();
  known_.emplace(key, cost);
  return cost;
}

Placement::Placement(Pricer& pricer, const Homes& homes)
    : pricer_(pricer), homes_(homes), lists_(pricer.segments.count()), costs_(pricer.segments.count()) {
  const Accesses& p = pricer.problem;
  for (Index k = 0; k < p.count(); ++k) lists_[homes_[p.object[k]]].push_back(k);
  for (Index s = 0; s < pricer.segments.count(); ++s) total_ += costs_[s] = pricer.price(s, lists_[s]);
}

Cost Placement::with(Index object, Index segment) {
  const Index from = homes_[object];
  if (segment == from) return total_;
  if (left_of_ != object) {
    without(object, left_);
    left_cost_ = pricer_.price(from, left_);
    left_of_ = object;
  }
  joined(lists_[segment], object, joined_);
  Cost cost = total_;
  cost -= costs_[from];
  cost -= costs_[segment];
  cost += left_cost_;
  return cost += pricer_.price(segment, joined_);
}

void Placement::move(Index object, Index segment) {
  const Index from = homes_[object];
  if (segment == from) return;
  total_ = with(object, segment);
  lists_[from].swap(left_);
  costs_[from] = left_cost_;
  joined(lists_[segment], object, joined_);
  lists_[segment].swap(joined_);
  costs_[segment] = pricer_.price(segment, lists_[segment]);
  homes_[object] = segment;
  left_of_ = -1;
}

bool Placement::swap_if_below(Index a, Index b, Cost than) {
  const Index s = homes_[a], t = homes_[b];
  const auto reach = [&](Index object) { return pricer_.segments.reach(pricer_.problem.size[object]); };
  if (s == t || reach(a) < t || reach(b) < s)
    return false;
  left_of_ = -1;
  std::vector<Index> one, two;
  without(a, left_);
  joined(left_, b, one);
  without(b, left_);
  joined(left_, a, two);
  const Cost first = pricer_.price(s, one), second = pricer_.price(t, two);
  Cost cost = total_;
  cost -= costs_[s];
  cost -= costs_[t];
  cost += first;
  cost += second;
  if (!(cost < than)) return false;
  lists_[s].swap(one), lists_[t].swap(two);
  costs_[s] = first, costs_[t] = second;
  std::swap(homes_[a], homes_[b]);
  total_ = cost;
  return true;
}

void Placement::without(Index object, std::vector<Index>& out) const {
  const auto& list = lists_[homes_[object]];
  out.clear();
  for (const Index k : list)
    if (pricer_.problem.object[k] != object) out.push_back(k);
}

void Placement::joined(std::span<const Index> list, Index object, std::vector<Index>& out) const {
  const auto more = pricer_.problem.of(object);
  out.resize(list.size() + more.size());
  std::merge(list.begin(), list.end(), more.begin(), more.end(), out.begin());
}

}  // namespace memx::plan::migration
