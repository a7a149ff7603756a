#include "choose.h"

#include <algorithm>

namespace memx::plan {

Index Chooser::operator()(const State& state, Tie tie, Index lo, Index hi) {
  Units floor = kNever;
  for (Index s = lo; s <= hi; ++s) {
    if (state.remaining(s) > 0) floor = std::min(floor, state.floor(s));
  }
  if (tie == Tie::kFewest) {
    for (Index b = model_.begin_of[lo]; b < model_.begin_of[hi + 1]; ++b) {
      if (state.least(b) != floor) continue;
      ++starting_[model_.first[b]];
      --starting_[model_.last[b] + 1];
    }
  }
  Index chosen = -1, running = 0;
  Units best = 0;
  for (Index s = lo; s <= hi; ++s) {
    running += starting_[s];
    starting_[s] = 0;
    if (state.floor(s) != floor || state.remaining(s) == 0) continue;
    Units cost = 0;
    switch (tie) {
      case Tie::kLeftmost: cost = s; break;
      case Tie::kRightmost: cost = -s; break;
      case Tie::kTightest: cost = state.slack(s); break;
      case Tie::kFewest: cost = 2 * running + (state.slack(s) > 0); break;
      case Tie::kFullest: cost = -state.remaining(s); break;
    }
    if (chosen < 0 || cost < best) {
      best = cost;
      chosen = s;
    }
  }
  starting_[hi + 1] = 0;
  return chosen;
}

}  // namespace memx::plan
