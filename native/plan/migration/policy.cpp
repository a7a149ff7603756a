#include "policy.h"

#include <algorithm>

namespace memx::plan::migration {

Memory::Memory(const Accesses& problem) : problem_(problem), slot_(problem.objects(), -1), local_(problem.objects()) {}

namespace {

// Larger goes first.
double weight(Rule rule, Index distance, Index last, bool dirty) {
  switch (rule) {
    case Rule::kFurthest: return distance;
    case Rule::kCheapest: return dirty ? distance : 2.0 * distance;
    case Rule::kClean: return dirty ? distance : 1e10 + distance;
    case Rule::kOldest: return -last;
  }
  return 0;
}

}  // namespace

Cost Memory::run(std::span<const Index> accesses, Bytes capacity, Rule rule, std::vector<std::uint8_t>* dropped,
                 Random* noise) {
  const Accesses& p = problem_;
  Cost cost;
  for (const Held& held : held_) slot_[held.object] = -1;
  held_.clear();
  Bytes used = 0;
  for (std::size_t i = 0; i < accesses.size();) {
    const Index step = p.step[accesses[i]];
    std::size_t end = i;
    Bytes need = 0, group = 0;
    for (; end < accesses.size() && p.step[accesses[end]] == step; ++end) {
      const Index o = p.object[accesses[end]];
      group += p.size[o];
      if (slot_[o] < 0) need += p.size[o];
    }
    if (group > capacity) cost.excess += group - capacity;
    Bytes over = used + need - capacity;
    if (over > 0) {
      order_.clear();
      for (std::size_t h = 0; h < held_.size(); ++h) {
        Held& held = held_[h];
        held.victim = false;
        if (p.step[held.next] == step) continue;
        double value = weight(rule, p.step[held.next] - step, held.last, held.dirty);
        if (noise) value *= 0.7 + 0.6 * noise->uniform();
        order_.emplace_back(value, h);
      }
      const auto stays_longer = [&](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : held_[a.second].object > held_[b.second].object;
      };
      std::make_heap(order_.begin(), order_.end(), stays_longer);
      auto rest = order_.end();  // from here on, victims, the first last
      while (rest != order_.begin() && over > 0) {
        std::pop_heap(order_.begin(), rest--, stays_longer);
        Held& held = held_[rest->second];
        held.victim = true;
        over -= p.size[held.object];
      }
      // Spare what turned out not to be in the way, what is needed soonest first.
      for (; rest != order_.end() && over < 0; ++rest) {
        Held& held = held_[rest->second];
        if (p.size[held.object] <= -over) held.victim = false, over += p.size[held.object];
      }
      std::size_t left = 0;
      for (std::size_t h = 0; h < held_.size(); ++h) {
        if (!held_[h].victim) {
          slot_[held_[h].object] = static_cast<Index>(left);
          held_[left++] = held_[h];
          continue;
        }
        slot_[held_[h].object] = -1;
        cost.moved += p.drop_bytes(held_[h].next, held_[h].dirty);
        used -= p.size[held_[h].object];
        if (dropped) (*dropped)[held_[h].next] = 1;
      }
      held_.resize(left);
    }
    // What this step accesses and is needed again is held from here on.
    for (; i < end; ++i) {
      const Index k = accesses[i];
      const Index o = p.object[k];
      bool dirty = false;
      if (const Index at = slot_[o]; at >= 0) {
        dirty = held_[at].dirty;
        used -= p.size[o];
        held_[at] = held_.back();
        slot_[held_[at].object] = at;
        held_.pop_back();
        slot_[o] = -1;
      }
      if (p.writes[k]) dirty = p.owes[k];
      if (!p.wanted[k]) continue;
      slot_[o] = static_cast<Index>(held_.size());
      held_.push_back({o, p.next[k], step, dirty, false});
      used += p.size[o];
    }
  }
  return cost;
}

}  // namespace memx::plan::migration
