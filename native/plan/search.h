// Exact search for a layout within a capacity: depth first over the partial layouts of state.h.
//
// It always works on a section with the lowest floor. Either some buffer starts there, one that covers the
// section and whose least offset is that floor, or none does and the floor rises to the next level at which
// one can. Sections no longer joined by an unplaced buffer are searched apart.
#pragma once

#include <cstdint>
#include <vector>

#include "choose.h"
#include "stop.h"

namespace memx::plan {

enum class Outcome { kFound, kExhausted, kLimit };

// States known to lead nowhere, by a hash: an entry may be wrong, if ever so rarely, so an exhausted search
// that used one proves nothing.
class FailedStates {
 public:
  explicit FailedStates(int bits) : shift_(64 - bits), slots_(std::size_t{1} << bits, 0) {}
  bool contains(std::uint64_t key) const { return slots_[key >> shift_] == key; }
  void insert(std::uint64_t key) { slots_[key >> shift_] = key; }
  void clear() { slots_.assign(slots_.size(), 0); }

 private:
  int shift_;
  std::vector<std::uint64_t> slots_;
};

class TreeSearch {
 public:
  // Without `failed` an exhausted search is a proof.
  TreeSearch(const Model& model, Bytes capacity, FailedStates* failed);

  // Candidates are tried in descending order of priority; at most `nodes` states are visited.
  Outcome run(const std::vector<double>& priority, Tie tie, std::int64_t nodes, Stop& stop);

  std::int64_t nodes() const { return visited_; }
  Units offset(Index b) const { return state_.offset(b); }

 private:
  Outcome solve(Index lo, Index hi);
  Outcome branch(Index lo, Index hi);
  Outcome solve_parts(Index lo, Index hi);
  Outcome descend(bool possible, Index lo, Index hi, std::size_t mark);
  Units next_level(Index section, Units floor) const;
  bool same(Index a, Index b) const;
  bool alone(Index b) const;

  const Model& model_;
  State state_;
  Chooser choose_;
  FailedStates* failed_;
  const std::vector<double>* priority_ = nullptr;
  Tie tie_ = Tie::kLeftmost;
  std::int64_t visited_ = 0, limit_ = 0;
  Stop* stop_ = nullptr;
  std::vector<Index> candidates_;  // a stack: those of every open state
};

}  // namespace memx::plan
