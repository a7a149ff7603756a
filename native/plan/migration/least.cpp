// The exact answer for few objects: dynamic programming over which of them are in memory, and dirty.
//
// Something is dropped only where an access needs the room, and then no more than needs to be: dropping it later costs
// the same. The whole price of a drop is paid at once, for the contents are sure to be read again.
#include <algorithm>
#include <unordered_map>

#include "policy.h"

namespace memx::plan::migration {

namespace {

constexpr std::int64_t kChoicesAState = 8;

struct State {
  std::uint64_t held = 0, dirty = 0;
  bool operator==(const State&) const = default;
};

struct Hash {
  std::size_t operator()(const State& s) const {
    std::uint64_t z = s.held * 0x9e3779b97f4a7c15u ^ (s.dirty + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return static_cast<std::size_t>(z ^ (z >> 31));
  }
};

struct Node {
  State state;
  Bytes cost = 0;
  std::int32_t parent = -1;
  std::uint64_t victims = 0;
};

}  // namespace

std::optional<Bytes> Memory::least(std::span<const Index> accesses, Bytes capacity, std::size_t most,
                                   std::vector<std::uint8_t>* dropped) {
  const Accesses& p = problem_;
  std::vector<Index> objects;
  for (Index k : accesses) {
    const Index o = p.object[k];
    auto at = std::find(objects.begin(), objects.end(), o);
    if (at == objects.end()) {
      if (objects.size() == 64) return std::nullopt;
      at = objects.insert(objects.end(), o);
    }
    local_[o] = static_cast<std::uint8_t>(at - objects.begin());
  }
  Bytes worst = 0;
  for (std::size_t r = 0; r < std::size(kRules); ++r) {
    const Cost found = run(accesses, capacity, kRules[r]);
    if (found.excess) return std::nullopt;
    worst = r ? std::min(worst, found.moved) : found.moved;
  }
  if (worst == 0) return 0;

  const auto bytes_of = [&](std::uint64_t mask) {
    Bytes total = 0;
    for (; mask; mask &= mask - 1) total += p.size[objects[__builtin_ctzll(mask)]];
    return total;
  };
  std::vector<Node> nodes{Node{}};
  std::vector<std::size_t> groups;
  std::unordered_map<State, std::int32_t, Hash> seen;
  std::size_t before = 0;
  auto work = static_cast<std::int64_t>(most) * kChoicesAState;
  for (std::size_t i = 0; i < accesses.size();) {
    const Index step = p.step[accesses[i]];
    std::uint64_t here = 0, writes = 0, owes = 0, wanted = 0;
    groups.push_back(i);
    for (; i < accesses.size() && p.step[accesses[i]] == step; ++i) {
      const Index k = accesses[i];
      const std::uint64_t bit = 1ull << local_[p.object[k]];
      here |= bit;
      if (p.writes[k]) writes |= bit;
      if (p.owes[k]) owes |= bit;
      if (p.wanted[k]) wanted |= bit;
    }
    const std::size_t after = nodes.size();
    seen.clear();
    for (std::size_t at = before; at < after; ++at) {
      const State from = nodes[at].state;
      const Bytes over = bytes_of(from.held | here) - capacity;
      std::vector<std::size_t> candidates;
      for (std::uint64_t mask = from.held & ~here; mask; mask &= mask - 1) candidates.push_back(__builtin_ctzll(mask));
      std::sort(candidates.begin(), candidates.end(),
                [&](std::size_t a, std::size_t b) { return p.size[objects[a]] > p.size[objects[b]]; });
      const Bytes spare = worst - nodes[at].cost;
      const auto arrive = [&](std::uint64_t victims) {
        State to{(from.held & ~victims) | here, (from.dirty & ~victims & ~writes) | owes};
        const Bytes cost = nodes[at].cost + bytes_of(victims) + bytes_of(victims & from.dirty);
        if (cost > worst) return true;
        to.held &= ~here | wanted;
        to.dirty &= to.held;
        const auto [known, is_new] = seen.try_emplace(to, static_cast<std::int32_t>(nodes.size()));
        if (is_new) {
          if (nodes.size() >= most) return false;
          nodes.push_back({to, cost, static_cast<std::int32_t>(at), victims});
        } else if (cost < nodes[known->second].cost) {
          nodes[known->second] = {to, cost, static_cast<std::int32_t>(at), victims};
        }
        return true;
      };
      // Sets of victims from the largest down, each ended by the one that makes it enough: none is superfluous.
      const auto choose = [&](auto&& self, std::size_t from_candidate, std::uint64_t victims, Bytes left,
                              Bytes paid) -> bool {
        if (--work < 0) return false;
        if (left <= 0) return arrive(victims);
        if (paid + left > spare) return true;
        for (std::size_t c = from_candidate; c < candidates.size(); ++c) {
          const std::uint64_t bit = 1ull << candidates[c];
          const Bytes bytes = p.size[objects[candidates[c]]];
          if (!self(self, c + 1, victims | bit, left - bytes, paid + (from.dirty & bit ? 2 : 1) * bytes)) return false;
        }
        return true;
      };
      if (!choose(choose, 0, 0, over, 0)) return std::nullopt;
    }
    before = after;
  }
  if (before == nodes.size()) return std::nullopt;
  std::size_t best = before;
  for (std::size_t at = before; at < nodes.size(); ++at)
    if (nodes[at].cost < nodes[best].cost) best = at;
  const Bytes cost = nodes[best].cost;
  if (dropped) {
    std::size_t at = best;
    for (std::size_t g = groups.size(); g-- > 0; at = static_cast<std::size_t>(nodes[at].parent)) {
      for (std::uint64_t mask = nodes[at].victims; mask; mask &= mask - 1) {
        const Index o = objects[__builtin_ctzll(mask)];
        // The object's first access at or after this step.
        const auto mine = p.of(o);
        const auto next = std::lower_bound(mine.begin(), mine.end(), accesses[groups[g]]);
        (*dropped)[*next] = 1;
      }
    }
  }
  return cost;
}

}  // namespace memx::plan::migration
