// All assignments of few objects to segments, but for those that cannot be better.
#pragma once

#include <cstdint>
#include <optional>

#include "../stop.h"
#include "home.h"

namespace memx::plan::migration {

struct Searched {
  bool complete = false;       // nothing is below `best`, which may be the cost given
  bool found = false;          // `homes` is new
  Homes homes;
  Cost best;
};

// Looks for an assignment without excess that costs less than `below`. More objects in a segment never cost less, so
// what is assigned so far is a bound.
Searched branch(Pricer& pricer, Cost below, std::int64_t nodes, Stop& stop);

// Whether the objects of the accesses before `steps` can be assigned without excess; nothing if that took too long.
std::optional<bool> assignable(const Accesses& problem, const Segments& segments, Index steps, std::int64_t nodes,
                               Homes* homes, Stop& stop);

}  // namespace memx::plan::migration
