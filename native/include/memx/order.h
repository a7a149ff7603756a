// Happens-before between streams, as far as memx knows it.
//
// A Point is a moment in a stream's queue: everything queued there so far. Points of one stream are numbered,
// so a set of points needs only the latest of each stream (PointSet), and an event that completes settles
// every earlier point of its stream. StreamTable owns the streams it has seen, their events and the edges
// between them that memx made or was told of; it knows no others.
//
// A stream is known by its id, not by its handle, because handles are recycled. A point is recorded with an
// event at once, except on streams that outlive every block (the legacy stream, the whole context, a framework's
// pooled ones): there it is recorded when somebody asks, which can only cover more work than needed.
//
// A framework (`framework`) keeps its streams and announces its captures: a handle seen before is looked up and not
// asked about, and whether a stream captures is asked only while a capture is announced.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "memx/driver.h"

namespace memx {

using Slot = std::uint32_t;  // index of a stream in its StreamTable

struct Point {
  Slot slot;
  std::uint64_t number;
};

// The latest point of each stream in a set of points. Small sets, kept inline.
class PointSet {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const Point* begin() const { return data(); }
  const Point* end() const { return data() + size_; }
  const Point& operator[](std::size_t i) const { return data()[i]; }

  void add(Point point) {
    for (std::size_t i = 0; i < size_; ++i)
      if (data()[i].slot == point.slot) {
        if (data()[i].number < point.number) data()[i].number = point.number;
        return;
      }
    push(point);
  }
  void merge(const PointSet& other) {
    for (const Point& point : other) add(point);
  }
  template <class Predicate>
  void remove_if(Predicate predicate) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i)
      if (!predicate(data()[i])) data()[kept++] = data()[i];
    size_ = static_cast<std::uint32_t>(kept);
  }
  void clear() { size_ = 0; }

 private:
  static constexpr std::size_t kInline = 2;
  Point* data() { return overflow_.empty() ? inline_ : overflow_.data(); }
  const Point* data() const { return overflow_.empty() ? inline_ : overflow_.data(); }
  void push(Point point) {
    if (overflow_.empty() && size_ < kInline) {
      inline_[size_++] = point;
      return;
    }
    if (overflow_.empty()) overflow_.assign(inline_, inline_ + size_);
    overflow_.resize(size_);
    overflow_.push_back(point);
    ++size_;
  }
  Point inline_[kInline];
  std::vector<Point> overflow_;
  std::uint32_t size_ = 0;
};

enum class ReuseMode { kStream, kDefault, kMutual };

// An event of memx's, given back to its table when nobody refers to it.
class EventPool;
using EventRef = std::shared_ptr<CUevent_st>;

class StreamTable {
 public:
  StreamTable(Device& device, ReuseMode mode, bool framework = false);
  ~StreamTable();
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  static constexpr Slot kLegacy = 0;
  static constexpr Slot kContext = 1;  // all work of the context; a point on it is ordered before nothing
  static constexpr Slot kGraph = 2;    // work that a captured graph may replay at any time: never over
  static constexpr Slot kNone = ~Slot{0};

  // The stream that `handle` means now, in this thread. Throws for a handle that the driver refuses.
  Slot slot_of(CUstream handle);
  // The same for a stream that may be gone: kContext then.
  Slot slot_or_context(CUstream handle, Slot last_known) noexcept;

  // Everything queued on the stream so far. Never throws: what cannot be recorded becomes a point on kContext.
  // `handle`: how the calling thread names the stream.
  Point now(Slot slot) noexcept;
  // Where work queued on the stream now goes: the stream itself or, while it is captured, a slot that stands for
  // graphs. A framework's captures have one for each stream, others are all kGraph.
  Slot target(Slot slot) noexcept;
  bool is_graph(Slot slot) const { return streams_[slot].graph; }
  Point mark(Slot graph) noexcept;  // what is used in a graph

  Point latest(Slot slot) const { return {slot, streams_[slot].issued}; }
  bool complete(const Point& point) const { return point.number <= streams_[point.slot].completed; }
  bool complete(const PointSet& points) const;
  // Could a host wait see them over now? Not what a graph may replay, nor what a capture under way forbids to record.
  bool waitable(const PointSet& points);
  // Asks the driver which events are over. `late`: also looks at the legacy stream's points that have no event yet.
  // The context's are recorded only when somebody waits for them: that breaks captures under way.
  // Returns whether anything is known to be complete that was not at the last poll.
  bool poll(bool late);

  // Would work queued on `slot` from now on run after `point`? By a real edge or completion:
  bool ordered(const Point& point, Slot slot) const;
  // ... or by the legacy stream's implicit order, which the block must go on carrying:
  bool implicitly_ordered(const Point& point, Slot slot) const;
  // `graph`: the stream's target while it is captured, if what the same stream freed in captures may be used again.
  bool usable(const PointSet& points, Slot slot, Slot graph = kNone) const;
  // For usable points: where only the implicit order puts work on `slot` after them, queues an event there. That is the
  // action which makes the order hold for whoever waits for the stream, the host too. False if it cannot.
  bool make_explicit(const PointSet& points, Slot slot);
  // Leaves what a block given to `slot` must still carry.
  void prune(PointSet& points, Slot slot) const;
  void prune_complete(PointSet& points) const;

  // Later work on `slot` follows everything so far on `on`: the caller did that.
  void note_wait(Slot slot, Slot on);
  // memx does it: queues a wait on `slot` for each point not ordered before it. False: refused or failed.
  bool insert_waits(const PointSet& points, Slot slot);
  void exclude(Slot slot) { streams_[slot].excluded = true; }
  bool excluded(Slot slot) const { return streams_[slot].excluded; }
  bool capturing(Slot slot);
  void announce_capture(bool begin) { announced_ += begin ? 1 : announced_ ? -1 : 0; }
  bool may_capture() const { return !framework_ || announced_; }
  // Is there any point that is not known to be over?
  bool outstanding() const;
  // Finds out whether a stream that exists now is blocking.
  void learn(Slot slot) noexcept;

  // An event whose completion implies the point; null if it is complete or cannot be recorded.
  EventRef event_for(const Point& point);
  bool has_context_events() const { return device_.table().cuCtxRecordEvent != nullptr; }
  void settle(const Point& point);  // the caller saw its event complete

  CUstream handle(Slot slot) const { return streams_[slot].handle; }
  ReuseMode mode() const { return mode_; }
  std::string name(Slot slot) const;
  std::size_t pending_events() const;

 private:
  struct Recorded {
    std::uint64_t number;
    EventRef event;
  };
  struct Stream {
    CUstream handle = nullptr;
    unsigned long long id = 0;
    bool blocking = false;    // takes part in the legacy stream's implicit order
    bool asked = false;       // whether it is blocking; until then it counts as not
    bool late = false;        // outlives every block
    bool per_thread = false;  // its handle means it in one thread only
    bool excluded = false;
    bool graph = false;       // stands for what graphs may replay
    bool active = false;      // in active_
    Slot twin = kNone;        // of a stream: its captured work's slot; of that: the stream
    std::uint64_t issued = 0;     // number of the latest point
    std::uint64_t recorded = 0;   // the latest point an event covers
    std::uint64_t completed = 0;  // the latest point known to be over
    std::deque<Recorded> events;  // oldest first
    std::unordered_map<Slot, std::uint64_t> after;  // real edges: runs after these points
  };
  bool is_capturing(CUstream handle) noexcept;
  bool any_capturing() noexcept;  // of the streams in this table, and of all blocking ones
  CUresult record(Slot slot, EventRef& event);
  void keep(Slot slot, EventRef event);  // `event` covers all points issued on the stream
  void poll_stream(Stream& stream);
  void thin(Stream& stream);
  void activate(Slot slot);
  void catch_up(Slot slot);
  bool is_live(Slot slot) noexcept;  // does the handle still mean the stream?
  // Slots of handles seen lately, where handles last.
  struct Known {
    CUstream handle = nullptr;
    Slot slot = 0;
  };
  Known& known(CUstream handle) {
    return known_[(reinterpret_cast<std::uintptr_t>(handle) * 0x9E3779B97F4A7C15ull) >> 58];
  }

  Device& device_;
  ReuseMode mode_;
  std::shared_ptr<EventPool> pool_;
  std::deque<Stream> streams_;
  std::unordered_map<unsigned long long, Slot> by_id_;
  std::vector<Slot> active_;  // streams with points outstanding
  std::array<Known, 64> known_{};
  bool framework_;
  unsigned announced_ = 0;  // captures under way
  bool news_ = false;  // something was found complete since the last poll
};

}  // namespace memx
