// A genetic algorithm over priorities and tie rules, each decoded by the lowest-section rule.
//
// Biased random keys (Goncalves and Resende 2011): the best survive, some are new, and the rest take each key
// from one of the best with a probability above one half, else from any other.
#pragma once

#include <vector>

#include "decoder.h"
#include "greedy.h"
#include "random.h"

namespace memx::plan {

class Genetic {
 public:
  Genetic(const Problem& problem, const Model& model, std::uint64_t seed);

  // Evolves until a layout is within `goal`, for at most `placements` (buffers placed, summed over layouts),
  // or until stopped; `best` is replaced by what is lower.
  void evolve(Offsets& best, Bytes goal, std::int64_t placements, Stop& stop);

  // The priorities of the best, best first.
  std::vector<std::vector<double>> leaders(std::size_t count) const;

 private:
  struct Individual {
    std::vector<double> keys;  // in [0, 1), for buffers in the model's order; one more for the tie rule
    double cost = 0;           // bytes of height, plus the share of sections above the goal
  };

  void found();
  void evaluate(Individual& individual, Offsets& best, Bytes goal, Stop& stop);
  Individual random_individual();
  Individual child(const Individual& better, const Individual& other);

  const Problem& problem_;
  const Model& model_;
  Decoder decoder_;
  Random random_;
  std::vector<Individual> population_;  // ascending in cost once evaluated
};

}  // namespace memx::plan
