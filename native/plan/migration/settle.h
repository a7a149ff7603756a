// From an assignment to decisions: what is dropped when, the least of it that can be found.
#pragma once

#include <cstdint>
#include <vector>

#include "../stop.h"
#include "home.h"

namespace memx::plan::migration {

struct Decisions {
  std::vector<std::uint8_t> dropped;  // by access: the contents do not last until it
  Cost cost;
  bool exact = true;  // no other decisions cost less
};

Decisions settle(const Accesses& problem, const Segments& segments, const Homes& homes, std::int64_t rounds,
                 std::uint64_t seed, Stop& stop);

// All of the device's memory for all objects, from a rule's decisions or, with a `priority` of each access, from those.
Decisions hold(const Accesses& problem, Bytes capacity, const std::vector<double>& priority, std::int64_t rounds,
               Bytes goal, std::uint64_t seed, Stop& stop);

}  // namespace memx::plan::migration
