// Which section a partial layout is continued in.
#pragma once

#include <vector>

#include "state.h"

namespace memx::plan {

// Among the sections with the lowest floor. Fewest: buffers that could start there; fullest: bytes left to place.
enum class Tie { kLeftmost, kRightmost, kTightest, kFewest, kFullest };
inline constexpr int kTies = 5;

class Chooser {
 public:
  explicit Chooser(const Model& model) : model_(model), starting_(model.sections + 1, 0) {}

  // A section of [lo, hi] that has something left to place; -1 if none has.
  Index operator()(const State& state, Tie tie, Index lo, Index hi);

 private:
  const Model& model_;
  std::vector<Index> starting_;  // how many candidates cover each section; zero between calls
};

}  // namespace memx::plan
