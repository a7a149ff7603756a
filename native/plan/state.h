// A partial layout, built from the bottom up and undone in reverse.
//
// Each section has a floor, the top of what is placed there; each unplaced buffer a least offset, the lowest
// that the floors below it allow. In every section buffers are placed in ascending order of offset.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace memx::plan {

class State {
 public:
  State(const Model& model, Bytes capacity);

  void reset();

  // Each returns false if some section's remaining buffers cannot fit above what is placed; undo it then too.
  bool start();
  bool place(Index b);
  bool raise(Index section, Units floor);

  std::size_t mark() const { return trail_.size(); }
  void undo(std::size_t mark);

  bool unplaced(Index b) const { return least_[b] < kPlaced; }
  Units floor(Index s) const { return floor_[s]; }
  Units remaining(Index s) const { return remaining_[s]; }
  Units slack(Index s) const { return capacity_ - floor_[s] - remaining_[s]; }
  Units least(Index b) const { return least_[b]; }
  Units offset(Index b) const { return offset_[b]; }
  // Whether an unplaced buffer covers both s and s + 1.
  bool joined(Index s) const { return crossing_[s] > 0; }

  // Of the unplaced buffers in [begin, end) and their least offsets.
  std::uint64_t hash(Index begin, Index end) const;

 private:
  static constexpr Units kPlaced = std::numeric_limits<Units>::max();
  enum class Kind : Index { kFloor, kLeast, kLowest, kPlace };
  struct Change {
    Units before;
    Index at;
    Kind kind;
    Index witness;
  };

  bool set_least(Index b, Units offset);
  void touch(Index from, Index to) {
    dirty_from_ = std::min(dirty_from_, from);
    dirty_to_ = std::max(dirty_to_, to);
  }
  bool settle();
  bool settle(Index s);

  const Model& model_;
  Units capacity_;               // rounded up
  std::vector<Units> highest_;   // offset of each buffer that ends within the capacity
  std::vector<Units> floor_, remaining_, least_, offset_;
  std::vector<Index> crossing_;
  std::vector<std::uint64_t> code_;  // of (buffer, least offset); 0 once placed
  // The lowest least offset in a section, and a buffer that has it: nothing starts lower there.
  std::vector<Units> lowest_;
  std::vector<Index> witness_;
  std::vector<Change> trail_;
  Index dirty_from_ = 0, dirty_to_ = -1;
};

}  // namespace memx::plan
