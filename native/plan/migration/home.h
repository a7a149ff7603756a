// Objects assigned to segments of memory, what that costs, and what it costs to move one elsewhere.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "accesses.h"
#include "policy.h"

namespace memx::plan::migration {

enum class Sharing { kExclusive, kPacked };

struct Segments {
  std::vector<Bytes> bytes;  // descending
  Sharing sharing = Sharing::kExclusive;

  Index count() const { return static_cast<Index>(bytes.size()); }
  // The segments 0 to this one hold an object of that size.
  Index reach(Bytes size) const;
};

using Homes = std::vector<Index>;  // by object: its segment

// Costs of segments; one for each thread.
class Pricer {
 public:
  Pricer(const Accesses& problem, const Segments& segments);

  // What the accesses, in order, cost in one segment; `dropped` as in Memory::run.
  Cost price(Index segment, std::span<const Index> accesses, std::vector<std::uint8_t>* dropped = nullptr);
  Cost price(const Homes& homes);

  // Whether all prices so far were the least.
  bool exact() const { return exact_; }

  const Accesses& problem;
  const Segments& segments;

 private:
  Cost alone(std::span<const Index> accesses, std::vector<std::uint8_t>* dropped);
  Cost together(Index segment, std::span<const Index> accesses, std::vector<std::uint8_t>* dropped);

  Memory memory_;
  std::vector<std::uint8_t> dirty_;
  std::vector<std::vector<Index>> lists_;
  std::vector<std::uint64_t> name_;  // of each object, random
  std::unordered_map<std::uint64_t, Cost> known_;
  bool exact_ = true;
};

// An assignment in change.
class Placement {
 public:
  Placement(Pricer& pricer, const Homes& homes);

  const Homes& homes() const { return homes_; }
  Cost cost() const { return total_; }
  Cost cost_of(Index segment) const { return costs_[segment]; }
  std::span<const Index> in(Index segment) const { return lists_[segment]; }

  // The cost after the object's move; remembered for `move`.
  Cost with(Index object, Index segment);
  void move(Index object, Index segment);
  // The cost after two objects of different segments change places, which is done if it is below `than`.
  bool swap_if_below(Index a, Index b, Cost than);

 private:
  void without(Index object, std::vector<Index>& out) const;
  void joined(std::span<const Index> list, Index object, std::vector<Index>& out) const;

  Pricer& pricer_;
  Homes homes_;
  std::vector<std::vector<Index>> lists_;
  std::vector<Cost> costs_;
  Cost total_;
  std::vector<Index> left_, joined_;
  Index left_of_ = -1;  // the object that `left_` is without
  Cost left_cost_;
};

}  // namespace memx::plan::migration
