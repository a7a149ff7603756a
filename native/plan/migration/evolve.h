// A genetic algorithm over assignments of objects to segments, after CN114398182B: the largest objects make the
// segments, the first generation assigns the others at random in order of access and size, the fitness is the bytes
// moved.
#pragma once

#include <cstdint>
#include <vector>

#include "../random.h"
#include "../stop.h"
#include "home.h"

namespace memx::plan::migration {

struct Individual {
  Homes homes;
  Cost cost;
};

struct Effort {
  std::int64_t generations = 0;
  std::int64_t patience = 0;  // ends after so many without a better one
  bool local = true;          // improve children by moves of single objects
  Bytes goal = 0;             // of bytes moved beyond the base: none is lower
};

// Of objects: as they are accessed first, from the largest down, from the most bytes accessed down.
enum class Order { kAccess, kSize, kTraffic };

class Evolution {
 public:
  Evolution(Pricer& pricer, std::uint64_t seed);

  std::vector<Individual> first_generation(std::size_t count);
  // The individuals at the end come best first. Returns how many generations have passed since the best got better.
  std::int64_t evolve(std::vector<Individual>& population, const Effort& effort, Stop& stop);
  // Moves and swaps of single objects as long as one is better, at most `sweeps` through all objects.
  void improve(Individual& individual, int sweeps, Stop& stop);
  // Moves of single objects at random, worse ones ever more seldom; then `improve`.
  void anneal(Individual& individual, std::int64_t moves, Bytes goal, Stop& stop);
  // One object after the other, each where it costs least; among equals in the tightest segment, or the first.
  Individual greedy(Order order, bool tight, Stop& stop);

 private:
  Individual random_individual(bool pinned);
  Individual child(const std::vector<Individual>& population);
  const Individual& chosen(const std::vector<Individual>& population);
  void mutate(Homes& homes);
  void repair(Homes& homes);
  bool fits(const Homes& homes, Index object, Index segment) const;
  Index somewhere(const Homes& homes, Index object);
  void touch_up(Individual& individual, std::size_t objects);

  Pricer& pricer_;
  const Accesses& problem_;
  const Segments& segments_;
  Random random_;
  std::vector<Index> reach_;      // by object
  std::vector<Index> by_access_;  // objects by first access, then from the largest down
  std::vector<Index> by_size_;    // from the largest down
  std::vector<std::vector<Index>> groups_;     // objects that one step accesses, where that is several
  std::vector<std::vector<Index>> groups_of_;  // by object
};

}  // namespace memx::plan::migration
