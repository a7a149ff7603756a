// Plays planned layouts back: recognises a repeating sequence of allocations and says where in the arena the next one
// belongs. Whether it may lie there now is the store's to check; what is not planned, or may not, the pool serves.
//
// A plan is the allocations of a run in their order, each with its size, its stream and its offset; from `repeat_from` on it
// repeats. Several plans, such as one for each sequence length, lie over each other in one arena; which of them the
// program follows is found out from what it asks for.
//
// Invariant: a position only moves forward within a step, so that every offset is handed out at most once a step.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memx/order.h"

namespace memx {

struct PlannedAllocation {
  std::uint64_t bytes;   // as asked
  std::uint64_t offset;  // from the start of the arena
  std::int64_t stream;   // a number of the plan's own; below 0: any
};

struct Plan {
  std::vector<PlannedAllocation> allocations;
  std::uint64_t repeat_from = 0;  // index of the first allocation of the step that repeats
};

class Playback {
 public:
  explicit Playback(std::vector<Plan> plans);

  // Where the next allocation is planned; nothing if it is in no plan here.
  std::optional<std::uint64_t> next(std::uint64_t bytes, Slot slot);
  // The program begins a step, which the plan of that number follows; none said: the one that the last step followed.
  void step(std::optional<std::size_t> plan);
  std::size_t plans() const { return tracks_.size(); }
  void served() { ++served_; }
  void blocked() { ++blocked_; }

  std::uint64_t height() const { return height_; }
  std::uint64_t served_count() const { return served_; }
  std::uint64_t departed_count() const { return departed_; }  // not in the plan there
  std::uint64_t blocked_count() const { return blocked_; }    // its place was not free and ordered

 private:
  static constexpr std::size_t kLookAhead = 64;  // allocations that the program may leave out at once
  static constexpr std::size_t kLost = 8;        // departures in a row after which a step may begin anywhere
  struct Track {
    Plan plan;
    std::vector<std::uint64_t> prefix;  // prefix[i]: hash of the allocations from repeat_from up to before the i-th
    std::unordered_map<std::int64_t, Slot> slots;  // the plan's streams, as met
  };
  static bool matches(const Track& track, std::size_t index, std::uint64_t bytes, Slot slot);
  void wrap();
  bool change_track(std::uint64_t bytes, Slot slot);
  bool find_ahead(std::uint64_t bytes, Slot slot);

  std::vector<Track> tracks_;
  std::size_t track_ = 0;
  std::size_t position_ = 0;      // in the track's plan
  std::uint64_t seen_ = 0;        // hash of the step's allocations so far
  bool faithful_ = true;          // they were the plan's so far, none left out
  bool repeating_ = false;        // the step began at repeat_from
  std::size_t lost_ = 0;          // departures since the last match
  std::uint64_t height_ = 0;
  std::uint64_t served_ = 0, departed_ = 0, blocked_ = 0;
};

}  // namespace memx
