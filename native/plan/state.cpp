#include "state.h"

#include <algorithm>

namespace memx::plan {

namespace {

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t code(Index b, Units least) {
  return scramble(scramble(static_cast<std::uint64_t>(b) + 1) + static_cast<std::uint64_t>(least) * 0x9e3779b97f4a7c15u) | 1;
}

}  // namespace

State::State(const Model& model, Bytes capacity)
    : model_(model), capacity_((capacity + model.unit - 1) / model.unit) {
  for (const Bytes bytes : model.bytes) highest_.push_back(capacity < bytes ? -1 : (capacity - bytes) / model.unit);
  reset();
}

void State::reset() {
  const std::size_t n = model_.count();
  floor_.assign(model_.sections, 0);
  remaining_ = model_.load;
  least_.resize(n);
  offset_.assign(n, 0);
  code_.resize(n);
  std::vector<Index> steps(model_.sections + 1, 0);
  for (std::size_t b = 0; b < n; ++b) {
    least_[b] = model_.lift(static_cast<Index>(b), 0);
    code_[b] = code(static_cast<Index>(b), least_[b]);
    ++steps[model_.first[b]];
    --steps[model_.last[b]];
  }
  crossing_.assign(model_.sections, 0);
  Index sum = 0;
  for (Index s = 0; s < model_.sections; ++s) crossing_[s] = sum += steps[s];
  lowest_.assign(model_.sections, -1);
  witness_.assign(model_.sections, -1);
  trail_.clear();
  dirty_from_ = model_.sections;
  dirty_to_ = -1;
}

bool State::start() {
  for (std::size_t b = 0; b < model_.count(); ++b) {
    if (least_[b] > highest_[b]) return false;
  }
  touch(0, model_.sections - 1);
  return settle();
}

bool State::place(Index b) {
  const Index first = model_.first[b], last = model_.last[b];
  const Units offset = least_[b], top = offset + model_.size[b];
  trail_.push_back({offset, b, Kind::kPlace, 0});
  offset_[b] = offset;
  least_[b] = kPlaced;
  code_[b] = 0;
  for (Index s = first; s <= last; ++s) {
    trail_.push_back({floor_[s], s, Kind::kFloor, 0});
    floor_[s] = top;
    remaining_[s] -= model_.size[b];
  }
  for (Index s = first; s < last; ++s) --crossing_[s];
  touch(first, last);
  bool possible = true;
  for (const Index c : model_.neighbours[b]) {
    if (least_[c] < top) possible = set_least(c, top) && possible;
  }
  return settle() && possible;
}

bool State::raise(Index section, Units floor) {
  trail_.push_back({floor_[section], section, Kind::kFloor, 0});
  floor_[section] = floor;
  touch(section, section);
  bool possible = true;
  for (const Index c : model_.cover[section]) {
    if (least_[c] < floor) possible = set_least(c, floor) && possible;
  }
  return settle() && possible;
}

void State::undo(std::size_t mark) {
  while (trail_.size() > mark) {
    const Change change = trail_.back();
    trail_.pop_back();
    const Index at = change.at;
    switch (change.kind) {
      case Kind::kFloor: floor_[at] = change.before; break;
      case Kind::kLeast:
        least_[at] = change.before;
        code_[at] = code(at, change.before);
        break;
      case Kind::kLowest:
        lowest_[at] = change.before;
        witness_[at] = change.witness;
        break;
      case Kind::kPlace:
        least_[at] = change.before;
        code_[at] = code(at, change.before);
        for (Index s = model_.first[at]; s <= model_.last[at]; ++s) remaining_[s] += model_.size[at];
        for (Index s = model_.first[at]; s < model_.last[at]; ++s) ++crossing_[s];
        break;
    }
  }
}

std::uint64_t State::hash(Index begin, Index end) const {
  std::uint64_t sum = 0;
  for (Index b = begin; b < end; ++b) sum += code_[b];
  return sum;
}

bool State::set_least(Index b, Units offset) {
  trail_.push_back({least_[b], b, Kind::kLeast, 0});
  least_[b] = model_.lift(b, offset);
  code_[b] = code(b, least_[b]);
  touch(model_.first[b], model_.last[b]);
  return least_[b] <= highest_[b];
}

bool State::settle() {
  bool possible = true;
  for (Index s = dirty_from_; s <= dirty_to_ && possible; ++s) possible = settle(s);
  dirty_from_ = model_.sections;
  dirty_to_ = -1;
  return possible;
}

bool State::settle(Index s) {
  if (remaining_[s] == 0) return true;
  const Index w = witness_[s];
  if (w < 0 || least_[w] != lowest_[s]) {
    trail_.push_back({lowest_[s], s, Kind::kLowest, w});
    Units lowest = kPlaced;
    Index who = -1;
    for (const Index b : model_.cover[s]) {
      if (least_[b] < lowest) {
        lowest = least_[b];
        who = b;
      }
    }
    lowest_[s] = lowest;
    witness_[s] = who;
  }
  return lowest_[s] + remaining_[s] <= capacity_;
}

}  // namespace memx::plan
