#include "search.h"

#include <algorithm>

namespace memx::plan {

TreeSearch::TreeSearch(const Model& model, Bytes capacity, FailedStates* failed)
    : model_(model), state_(model, capacity), choose_(model), failed_(failed) {}

Outcome TreeSearch::run(const std::vector<double>& priority, Tie tie, std::int64_t nodes, Stop& stop) {
  priority_ = &priority;
  tie_ = tie;
  visited_ = 0;
  limit_ = nodes;
  stop_ = &stop;
  candidates_.clear();
  state_.reset();
  if (!state_.start()) return Outcome::kExhausted;
  return solve_parts(0, model_.sections - 1);
}

// Solves the parts that unplaced buffers no longer join, the shortest first: it fails soonest.
Outcome TreeSearch::solve_parts(Index lo, Index hi) {
  struct Part {
    Index lo, hi;
  };
  Part few[8];
  std::vector<Part> many;
  std::size_t count = 0;
  for (Index s = lo; s <= hi; ++s) {
    if (state_.remaining(s) == 0) continue;
    Index end = s;
    while (end < hi && state_.joined(end)) ++end;
    if (count < std::size(few)) {
      few[count] = {s, end};
    } else {
      if (many.empty()) many.assign(few, few + count);
      many.push_back({s, end});
    }
    ++count;
    s = end;
  }
  const std::span<Part> parts = many.empty() ? std::span<Part>(few, count) : std::span<Part>(many);
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.hi - a.lo < b.hi - b.lo; });
  for (const Part& part : parts) {
    const Outcome outcome = solve(part.lo, part.hi);
    if (outcome != Outcome::kFound) return outcome;
  }
  return Outcome::kFound;
}

Outcome TreeSearch::solve(Index lo, Index hi) {
  if (++visited_ > limit_ || (*stop_)()) return Outcome::kLimit;
  if (failed_ == nullptr) return branch(lo, hi);
  const std::uint64_t key = state_.hash(model_.begin_of[lo], model_.begin_of[hi + 1]);
  if (failed_->contains(key)) return Outcome::kExhausted;
  const Outcome outcome = branch(lo, hi);
  if (outcome == Outcome::kExhausted) failed_->insert(key);
  return outcome;
}

Outcome TreeSearch::descend(bool possible, Index lo, Index hi, std::size_t mark) {
  const Outcome outcome = possible ? solve_parts(lo, hi) : Outcome::kExhausted;
  if (outcome != Outcome::kFound) state_.undo(mark);
  return outcome;
}

Outcome TreeSearch::branch(Index lo, Index hi) {
  const Index section = choose_(state_, tie_, lo, hi);
  const Units floor = state_.floor(section);

  const std::size_t base = candidates_.size();
  for (const Index b : model_.cover[section]) {
    if (state_.least(b) == floor) candidates_.push_back(b);
  }
  const std::size_t mark = state_.mark();
  const auto done = [&](Outcome outcome) {
    candidates_.resize(base);
    return outcome;
  };
  for (std::size_t i = base; i < candidates_.size(); ++i) {
    const Index b = candidates_[i];
    // Nothing will lie above it, or it spans all there is: if there is a layout, there is one with it here.
    if (alone(b) || (model_.first[b] == lo && model_.last[b] == hi && model_.sinks(b))) {
      candidates_.resize(base);
      return descend(state_.place(b), lo, hi, mark);
    }
  }
  std::sort(candidates_.begin() + base, candidates_.end(), [&](Index a, Index b) {
    return (*priority_)[a] != (*priority_)[b] ? (*priority_)[a] > (*priority_)[b] : a < b;
  });
  const std::size_t count = candidates_.size() - base;
  for (std::size_t i = 0; i < count; ++i) {
    const Index b = candidates_[base + i];
    bool tried = false;
    for (std::size_t j = 0; j < i && !tried; ++j) tried = same(candidates_[base + j], b);
    if (tried) continue;
    const Outcome outcome = descend(state_.place(b), lo, hi, mark);
    if (outcome != Outcome::kExhausted) return done(outcome);
  }

  if (state_.slack(section) <= 0) return done(Outcome::kExhausted);
  const Units next = next_level(section, floor);
  if (next - floor > state_.slack(section)) return done(Outcome::kExhausted);
  for (std::size_t i = 0; i < count; ++i) {
    // It fits whole into what would stay empty.
    const Index b = candidates_[base + i];
    if (model_.first[b] == section && model_.last[b] == section && model_.size[b] <= next - floor) {
      return done(Outcome::kExhausted);
    }
  }
  return done(descend(state_.raise(section, next), lo, hi, mark));
}

// The lowest offset above the floor at which a buffer can start in the section if none starts at the floor.
Units TreeSearch::next_level(Index section, Units floor) const {
  Units next = kNever;
  for (const Index c : model_.cover[section]) {
    if (!state_.unplaced(c)) continue;
    Units level = state_.least(c);
    if (level == floor) {
      // It has to lie on another that is placed first, beside this section.
      Units top = kNever;
      for (const Index d : model_.neighbours[c]) {
        if (!state_.unplaced(d) || (model_.first[d] <= section && section <= model_.last[d])) continue;
        top = std::min(top, state_.least(d) + model_.size[d]);
      }
      level = top < kNever ? model_.lift(c, top) : kNever;
    }
    next = std::min(next, level);
  }
  return next;
}

bool TreeSearch::same(Index a, Index b) const {
  return model_.first[a] == model_.first[b] && model_.last[a] == model_.last[b] && model_.bytes[a] == model_.bytes[b] &&
         model_.alignment[a] == model_.alignment[b] && model_.fixed[a] == kFree && model_.fixed[b] == kFree;
}

bool TreeSearch::alone(Index b) const {
  for (Index s = model_.first[b]; s <= model_.last[b]; ++s) {
    if (state_.remaining(s) != model_.size[b]) return false;
  }
  return true;
}

}  // namespace memx::plan
