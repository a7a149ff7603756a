// The tree search under restarts: short runs with ever other priorities, then longer ones, all of which
// share what they found to lead nowhere.
#pragma once

#include <vector>

#include "decoder.h"
#include "greedy.h"
#include "random.h"
#include "search.h"

namespace memx::plan {

struct Improved {
  Offsets best;
  Bytes bound = 0;  // no layout is lower: proven
};

class Portfolio {
 public:
  Portfolio(const Problem& problem, const Model& model, std::uint64_t seed);

  // Priorities in [0, 1) that did well elsewhere, for buffers in the model's order; some of the runs start from them.
  void suggest(std::vector<double> priority);

  // Looks for a layout within `capacity`, or if that is negative for ever lower ones, until one is within
  // `tolerance` of what is proven. Ends there, when it is proven that there is none, after `rounds`, or when
  // stopped. Whether there is nothing left to look for.
  bool improve(Improved& improved, Bytes capacity, Bytes tolerance, int rounds, Stop& stop);

 private:
  void dive(Improved& improved, Bytes goal, Stop& stop);
  bool fit(Improved& improved, Bytes capacity, Stop& stop);
  bool minimise(Improved& improved, Bytes tolerance, Stop& stop);
  Outcome attempt(Bytes target, Improved& improved, Stop& stop);
  bool prove(Bytes target, Stop& stop);
  std::int64_t round_nodes() const;
  void next_priority();
  template <class Placed>
  void accept(const Placed& placed, const char* how, Improved& improved) const;

  const Problem& problem_;
  const Model& model_;
  Random random_;
  std::vector<std::vector<double>> keys_;
  std::vector<double> priority_;
  Tie tie_ = Tie::kFewest;
  std::int64_t runs_ = 0;
  int rounds_done_ = 0;
  FailedStates failed_;
  Bytes failed_for_ = 0;  // the target that the table was filled for
};

}  // namespace memx::plan
