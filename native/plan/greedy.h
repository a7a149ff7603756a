// Placement one buffer at a time, each at the best free offset that its order leaves it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "problem.h"
#include "stop.h"

namespace memx::plan {

enum class Order { kSize, kArea, kLength, kStart };
enum class Fit { kFirst, kBest };

struct Offsets {
  std::vector<Bytes> at;
  Bytes height = 0;
  std::string how;
};

std::vector<Index> ordered(const Problem& problem, Order order);

// Buffers in the given order, each in the lowest (first) or tightest (best) gap between those placed
// before and alive with it. Nothing if stopped before all were placed. Time: the pairs alive together.
std::optional<Offsets> place_in_order(const Problem& problem, const std::vector<Index>& order, Fit fit,
                                      Stop& stop);

// What an allocator would do online, best fit by size with coalescing: O(n log n) whatever the lifetimes.
// Not for problems with fixed offsets. Goes on past the deadline; half done if cancelled.
Offsets place_by_arrival(const Problem& problem, const Stop& stop);

// The best of several orders and fits; ends early at the bound or, if it is not negative, within `capacity`.
// The first layout is always completed, the others while time lasts. An empty name: fixed buffers collide.
Offsets greedy(const Problem& problem, Bytes capacity, Stop& stop);

}  // namespace memx::plan
