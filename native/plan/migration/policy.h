// Which objects stay in memory that holds several, when an access needs room: rules, and the exact answer for few.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../random.h"
#include "accesses.h"

namespace memx::plan::migration {

struct Cost {
  Bytes excess = 0;  // by how much operations do not fit; conflicts where objects stay alone
  Bytes moved = 0;   // bytes beyond the problem's base
  auto operator<=>(const Cost&) const = default;
  Cost& operator+=(const Cost& other) { return excess += other.excess, moved += other.moved, *this; }
  Cost& operator-=(const Cost& other) { return excess -= other.excess, moved -= other.moved, *this; }
};

enum class Rule { kFurthest, kCheapest, kClean, kOldest };
inline constexpr Rule kRules[] = {Rule::kFurthest, Rule::kCheapest, Rule::kClean, Rule::kOldest};

// Memory of some capacity over the accesses of some objects, given in order.
class Memory {
 public:
  explicit Memory(const Accesses& problem);

  // What a rule costs. `dropped`, of one flag an access of the problem: set where contents do not last until that
  // access, and left alone elsewhere. With `noise`, nearly the rule.
  Cost run(std::span<const Index> accesses, Bytes capacity, Rule rule, std::vector<std::uint8_t>* dropped = nullptr,
           Random* noise = nullptr);

  // The least cost, if it takes no more than `most` states; at most 64 objects, all operations fit.
  std::optional<Bytes> least(std::span<const Index> accesses, Bytes capacity, std::size_t most,
                             std::vector<std::uint8_t>* dropped = nullptr);

 private:
  struct Held {
    Index object;
    Index next;   // its next access
    Index last;   // step of the last one
    bool dirty;
    bool victim;
  };

  const Accesses& problem_;
  std::vector<Held> held_;
  std::vector<std::pair<double, std::size_t>> order_;
  std::vector<Index> slot_;          // by object: where in `held_`, or -1
  std::vector<std::uint8_t> local_;  // by object: its bit
};

}  // namespace memx::plan::migration
