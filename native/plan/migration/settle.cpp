#include "settle.h"

#include <numeric>

#include "gaps.h"

namespace memx::plan::migration {

namespace {

constexpr std::size_t kStates = 200'000;

// The least, or what the rules and the search find.
Cost decide(const Accesses& problem, Memory& memory, std::span<const Index> accesses, Bytes capacity,
            const std::vector<double>& priority, std::int64_t rounds, Bytes goal, Random& random, Decisions& out,
            Stop& stop) {
  Rule rule = kRules[0];
  Cost cost = memory.run(accesses, capacity, rule);
  for (const Rule other : kRules) {
    const Cost found = memory.run(accesses, capacity, other);
    if (found < cost) cost = found, rule = other;
  }
  if (cost.excess || cost.moved <= goal) {
    memory.run(accesses, capacity, rule, &out.dropped);
    out.exact = out.exact && !cost.excess;
    return cost;
  }
  if (const auto least = memory.least(accesses, capacity, kStates, &out.dropped)) return {0, *least};
  out.exact = false;
  std::vector<std::uint8_t> dropped(problem.count());
  memory.run(accesses, capacity, rule, &dropped);
  Gaps gaps(problem, accesses, capacity);
  if (!priority.empty()) {
    gaps.fill(priority);
    const Bytes filled = gaps.cost();
    gaps.start(dropped);
    if (filled < gaps.cost()) gaps.fill(priority);
  } else {
    gaps.start(dropped);
  }
  gaps.improve(rounds, goal, random, stop);
  if (gaps.cost() < cost.moved) {
    gaps.write(dropped);
    cost.moved = gaps.cost();
  }
  for (const Index k : accesses) out.dropped[k] = dropped[k];
  return cost;
}

}  // namespace

Decisions settle(const Accesses& problem, const Segments& segments, const Homes& homes, std::int64_t rounds,
                 std::uint64_t seed, Stop& stop) {
  Decisions out;
  out.dropped.assign(problem.count(), 0);
  std::vector<std::vector<Index>> lists(segments.count());
  for (Index k = 0; k < problem.count(); ++k) lists[homes[problem.object[k]]].push_back(k);
  Random random(seed);
  Pricer pricer(problem, segments);
  Memory memory(problem);
  for (Index s = 0; s < segments.count(); ++s) {
    if (segments.sharing == Sharing::kExclusive) {
      out.cost += pricer.price(s, lists[s], &out.dropped);
    } else {
      out.cost += decide(problem, memory, lists[s], segments.bytes[s], {}, rounds, 0, random, out, stop);
    }
  }
  return out;
}

Decisions hold(const Accesses& problem, Bytes capacity, const std::vector<double>& priority, std::int64_t rounds,
               Bytes goal, std::uint64_t seed, Stop& stop) {
  Decisions out;
  out.dropped.assign(problem.count(), 0);
  std::vector<Index> all(problem.count());
  std::iota(all.begin(), all.end(), 0);
  Random random(seed);
  Memory memory(problem);
  out.cost = decide(problem, memory, all, capacity, priority, rounds, goal, random, out, stop);
  return out;
}

}  // namespace memx::plan::migration
