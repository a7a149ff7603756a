// The race oracle. Every access is checked when it is queued, at the logical time of its operation: two
// accesses to the same physical bytes, at least one a write, must have a happens-before edge between them. It
// shares no code with memx. Called with the driver's lock held.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "oracle_shadow.h"

namespace memxsim {

struct Queue;
struct Region;
struct Context;

struct Finding {
  const char* kind = "race";
  AccessRecord first, second;  // of sequence number 0: a call of the host
};

// What host code knows to be complete.
struct HostClock {
  Clock clock;
  uint64_t generation = 1;
};

class Oracle {
 public:
  void stream_born(Queue& queue);  // gives it its slot and its first sequence number
  void stream_dies(Queue& queue);

  // The operation about to be queued follows what the calling host thread knows ...
  void follow_host(Queue& queue);
  // ... and whatever this stamp is of.
  void follow(Queue& queue, const Stamp& stamp);
  void follow(Queue& queue, const Clock& clock);
  Stamp stamp(const Queue& queue) const;

  // One access of the operation; `offset` is within the region's memory.
  void access(Queue& queue, Region& region, uint64_t offset, uint64_t bytes, const AccessRecord& record);

  // The calling host thread has seen the operation complete.
  void host_learns(const Stamp& stamp);
  void host_learns(const Clock& clock);
  bool host_knows(Slot slot, uint64_t seq);

  // The host takes memory away: unmaps, frees, or narrows the access of one device.
  void taken_away(Region& region, const char* function, int device = kEveryDevice);
  static constexpr int kEveryDevice = -1;

  // The operation uses memory whose free was queued before it, or that was not allocated yet.
  void outlives(const AccessRecord& end, const AccessRecord& use);

  // Whether something queued, not known to be complete, writes any of it.
  bool pending_write(const Region& region, uint64_t offset, uint64_t bytes);

  void set_thread_clocks(bool each_thread) { each_thread_ = each_thread; }

  uint64_t count() const { return count_; }
  std::string json() const;
  void clear();

 private:
  static constexpr size_t kStored = 1000;
  Clock& own(Queue& queue);
  HostClock& host();
  bool already_reported(const Operation& by, const Operation& with);
  void report(Finding finding);
  void reclaim_slots();

  bool each_thread_ = false;
  HostClock everyone_;
  std::vector<uint64_t> last_seq_;   // by slot
  std::vector<Slot> free_slots_, dying_slots_;
  uint64_t count_ = 0;
  std::vector<Finding> findings_;
  // Pairs already reported for the operation being queued.
  Slot reporting_slot_ = 0;
  uint64_t reporting_seq_ = 0;
  std::vector<std::pair<Slot, uint64_t>> reported_;
};

}  // namespace memxsim
