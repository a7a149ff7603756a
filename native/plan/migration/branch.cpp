#include "branch.h"

#include <algorithm>
#include <numeric>

namespace memx::plan::migration {

namespace {

class Branch {
 public:
  Branch(Pricer& pricer, Cost below, std::int64_t nodes, Stop& stop)
      : pricer_(pricer), stop_(stop), left_(nodes), lists_(pricer.segments.count()), costs_(pricer.segments.count()),
        order_(pricer.problem.objects()), homes_(pricer.problem.objects(), -1) {
    found_.best = below;
    const Accesses& p = pricer.problem;
    std::iota(order_.begin(), order_.end(), 0);
    // Those whose place says most come first.
    std::stable_sort(order_.begin(), order_.end(), [&](Index a, Index b) {
      return p.size[a] * static_cast<Bytes>(p.of(a).size()) > p.size[b] * static_cast<Bytes>(p.of(b).size());
    });
  }

  Searched run() {
    found_.complete = descend(0, Cost{});
    return std::move(found_);
  }

 private:
  bool descend(std::size_t depth, Cost so_far) {
    if (depth == order_.size()) {
      found_.best = so_far, found_.homes = homes_, found_.found = true;
      return true;
    }
    const Accesses& p = pricer_.problem;
    const Segments& segments = pricer_.segments;
    const Index o = order_[depth];
    std::vector<std::pair<Cost, Index>> tries;
    for (Index s = 0; s <= segments.reach(p.size[o]); ++s) {
      // Empty segments of one size are one segment.
      if (s > 0 && lists_[s].empty() && lists_[s - 1].empty() && segments.bytes[s] == segments.bytes[s - 1]) continue;
      if (--left_ < 0 || stop_()) return false;
      std::vector<Index> joined(lists_[s].size() + p.of(o).size());
      std::merge(lists_[s].begin(), lists_[s].end(), p.of(o).begin(), p.of(o).end(), joined.begin());
      Cost cost = so_far;
      cost -= costs_[s];
      cost += pricer_.price(s, joined);
      if (cost.excess == 0 && cost.moved < found_.best.moved) tries.emplace_back(cost, s);
    }
    std::stable_sort(tries.begin(), tries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [cost, s] : tries) {
      if (!(cost.moved < found_.best.moved)) break;
      std::vector<Index> before = lists_[s];
      const Cost cost_before = costs_[s];
      lists_[s].resize(before.size() + p.of(o).size());
      std::merge(before.begin(), before.end(), p.of(o).begin(), p.of(o).end(), lists_[s].begin());
      costs_[s] += cost;
      costs_[s] -= so_far;
      homes_[o] = s;
      const bool complete = descend(depth + 1, cost);
      lists_[s].swap(before);
      costs_[s] = cost_before;
      if (!complete) return false;
    }
    return true;
  }

  Pricer& pricer_;
  Stop& stop_;
  std::int64_t left_;
  std::vector<std::vector<Index>> lists_;
  std::vector<Cost> costs_;
  std::vector<Index> order_;
  Homes homes_;
  Searched found_;
};

// Colouring with sizes: the object with the fewest segments left comes next.
class Assign {
 public:
  Assign(const Accesses& problem, const Segments& segments, Index steps, std::int64_t nodes, Stop& stop)
      : problem_(problem), segments_(segments), stop_(stop), left_(nodes), homes_(problem.objects(), -1),
        groups_of_(problem.objects()) {
    std::vector<char> seen(problem.objects());
    for (Index k = 0; k < problem.count() && problem.step[k] < steps;) {
      Index end = k;
      for (; end < problem.count() && problem.step[end] == problem.step[k]; ++end) {
        const Index o = problem.object[end];
        if (!seen[o]) open_.push_back(o), seen[o] = 1;
        groups_of_[o].push_back(static_cast<Index>(rooms_.size()));
      }
      rooms_.push_back(segments.bytes);
      k = end;
    }
  }

  std::optional<bool> run(Homes* homes) {
    const int outcome = descend();
    if (outcome < 0) return std::nullopt;
    if (outcome && homes) {
      *homes = homes_;
      for (Index& home : *homes) home = std::max(home, 0);
    }
    return outcome == 1;
  }

 private:
  bool fits(Index o, Index s) const {
    for (const Index g : groups_of_[o])
      if (rooms_[g][s] < problem_.size[o]) return false;
    return true;
  }

  int descend() {
    if (open_.empty()) return 1;
    if (stop_()) return -1;
    std::size_t next = 0;
    Index fewest = segments_.count() + 1;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      Index choices = 0;
      for (Index s = 0; s <= segments_.reach(problem_.size[open_[i]]) && choices < fewest; ++s)
        choices += fits(open_[i], s);
      if (choices < fewest) fewest = choices, next = i;
      if (fewest == 0) return 0;
    }
    const Index o = open_[next];
    std::swap(open_[next], open_.back());
    open_.pop_back();
    int outcome = 0;
    for (Index s = segments_.reach(problem_.size[o]); s >= 0 && outcome == 0; --s) {
      // Segments of one size that have nothing yet are one segment.
      if (s + 1 < segments_.count() && segments_.bytes[s] == segments_.bytes[s + 1] && untouched(s) && untouched(s + 1))
        continue;
      if (!fits(o, s)) continue;
      if (--left_ < 0) {
        outcome = -1;
        break;
      }
      homes_[o] = s;
      std::vector<Bytes> before;
      for (const Index g : groups_of_[o]) {
        before.push_back(rooms_[g][s]);
        rooms_[g][s] = segments_.sharing == Sharing::kExclusive ? 0 : rooms_[g][s] - problem_.size[o];
      }
      outcome = descend();
      if (outcome == 1) return 1;
      for (std::size_t i = 0; i < before.size(); ++i) rooms_[groups_of_[o][i]][s] = before[i];
      homes_[o] = -1;
    }
    open_.push_back(o);
    std::swap(open_[next], open_.back());
    return outcome;
  }

  bool untouched(Index s) const {
    return std::all_of(rooms_.begin(), rooms_.end(), [&](const auto& room) { return room[s] == segments_.bytes[s]; });
  }

  const Accesses& problem_;
  const Segments& segments_;
  Stop& stop_;
  std::int64_t left_;
  Homes homes_;
  std::vector<Index> open_;
  std::vector<std::vector<Bytes>> rooms_;  // by step and segment: what is left
  std::vector<std::vector<Index>> groups_of_;
};

}  // namespace

Searched branch(Pricer& pricer, Cost below, std::int64_t nodes, Stop& stop) {
  return Branch(pricer, below, nodes, stop).run();
}

std::optional<bool> assignable(const Accesses& problem, const Segments& segments, Index steps, std::int64_t nodes,
                               Homes* homes, Stop& stop) {
  return Assign(problem, segments, steps, nodes, stop).run(homes);
}

}  // namespace memx::plan::migration
