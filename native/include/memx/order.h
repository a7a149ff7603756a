// Happens-before between streams, as far as memx knows it.
//
// A Point is a moment in a stream's queue: everything queued there so far. Points of one stream are numbered,
// so a set of points needs only the latest of each stream (PointSet), and an event that completes settles
// every earlier point of its stream. StreamTable owns the streams it has seen, their events and the edges
// between them that memx made or was told of; it knows no others.
//
// A stream is known by its id, not by its handle, because handles are recycled. A point is recorded with an
// event at once, except on streams that outlive every block (the legacy stream, the whole context, a framework's
// pooled ones): there it is recorded when somebody asks, which can only cover more work than needed. A number is
// given out before its event is recorded, so that an event covers every smaller number, whoever else records.
//
// A framework (`framework`) keeps its streams and announces its captures: a handle seen before is looked up and not
// asked about, and whether a stream captures is asked only while a capture is announced.
//
// What graphs may replay is never over while they exist. Each captured stream's part of a graph is a slot of its own where
// the driver can say when the graph is gone; from then on it is over when all of the context's work so far is, as is
// the work of a framework's stream that is gone all the same.
//
// Members that take a Lock let go of it for driver calls.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "memx/driver.h"
#include "memx/graphs.h"
#include "memx/lock.h"
#include "memx/points.h"

namespace memx {

enum class ReuseMode { kStream, kDefault, kMutual };

// An event of a StreamTable's, back in its pool when nobody refers to it.
struct Event {
  CUevent handle = nullptr;
  unsigned users = 0;
};

class StreamTable {
 public:
  StreamTable(Device& device, ReuseMode mode, bool framework = false);
  ~StreamTable();
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  static constexpr Slot kLegacy = 0;
  static constexpr Slot kContext = 1;  // all work of the context; a point on it is ordered before nothing
  static constexpr Slot kGraph = 2;    // work that a captured graph may replay at any time: never over
  static constexpr Slot kNone = Point::kSlots;

  // The stream that `handle` means now, in this thread. Throws for a handle that the driver refuses.
  Slot slot_of(Lock& lock, CUstream handle) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return kLegacy;
    if (const Known& one = known(handle); one.handle == handle) return one.slot;
    return ask_slot(lock, handle);
  }

  // Everything queued on the stream so far. Never throws: what cannot be recorded becomes a point on kContext.
  Point now(Lock& lock, Slot slot) noexcept {
    if (streams_[slot].late && (slot <= kGraph || !may_capture())) return mark(slot);
    return record_now(lock, slot);
  }
  // Where work queued on the stream now goes: the stream itself or, while it is captured, a slot that stands for its part
  // of the graph; kGraph, or a framework's stream's only one, where the driver does not say when the graph is gone.
  Slot target(Lock& lock, Slot slot) noexcept;
  bool is_graph(Slot slot) const { return streams_[slot].graph; }
  bool is_gone(Slot slot) const { return streams_[slot].successor != 0; }
  Point mark(Slot late) noexcept {
    Stream& stream = streams_[late];
    if (!stream.active) activate(late);
    return {late, ++stream.issued};
  }

  Point latest(Slot slot) const { return {slot, streams_[slot].issued}; }
  bool complete(const Point& point) const { return point.number() <= streams_[point.slot()].completed; }
  bool complete(const PointSet& points) const;
  // Could a host wait see them over now? Not what a graph may replay, nor what a capture under way forbids to record.
  bool waitable(Lock& lock, PointSet points);
  // Asks the driver which events are over. `late`: also looks at streams' points that have no event yet. The
  // context's are recorded only when somebody waits for them: that breaks captures under way.
  // Returns whether anything is known to be complete that was not at the last poll.
  bool poll(Lock& lock, bool late);
  // The streams of which more is complete since the last call.
  void take_news(std::vector<Slot>& out);

  // Would work queued on `slot` from now on run after `point`? By a real edge or completion:
  bool ordered(const Point& point, Slot slot) const {
    if (complete(point)) return true;
    if (point.slot() == slot) return slot != kContext && !is_graph(slot);
    return !streams_[slot].after.empty() && ordered_by_edge(point, slot);
  }
  // ... or by the legacy stream's implicit order, which the block must go on carrying:
  bool implicitly_ordered(const Point& point, Slot slot) const;
  // `graph`: the stream's target while it is captured, if what the same stream freed in captures may be used again.
  bool usable(const PointSet& points, Slot slot, Slot graph = kNone) const;
  // For usable points: where only the implicit order puts work on `slot` after them, queues an event there. That is the
  // action which makes the order hold for whoever waits for the stream, the host too. False if it cannot.
  bool make_explicit(Lock& lock, const PointSet& points, Slot slot);
  // Leaves what a block given to `slot` must still carry.
  void prune(PointSet& points, Slot slot) const {
    if (!points.empty()) points.remove_if([&](const Point& point) { return ordered(point, slot); });
  }
  void prune_complete(PointSet& points) const {
    if (!points.empty()) points.remove_if([&](const Point& point) { return complete(point); });
  }

  // Later work on `slot` follows everything so far on `on`: the caller did that.
  void note_wait(Slot slot, Slot on);
  // memx does it: queues a wait on `slot` for each point not ordered before it. False: refused or failed.
  bool insert_waits(Lock& lock, PointSet points, Slot slot);
  // The same in every mode, for points of memx's own streams, whose work waits for nobody's.
  bool follow(Lock& lock, PointSet points, Slot slot);
  void exclude(Slot slot) { streams_[slot].excluded = true; }
  bool excluded(Slot slot) const { return streams_[slot].excluded; }
  bool capturing(Lock& lock, Slot slot);
  void announce_capture(bool begin) { announced_ += begin ? 1 : announced_ ? -1 : 0; }
  bool may_capture() const { return !framework_ || announced_; }
  // Is there any point that is not known to be over?
  bool outstanding() const;
  // Finds out whether a stream that exists now is blocking.
  void learn(Lock& lock, Slot slot) noexcept;

  // An event whose completion implies the point, kept until it is let go; null if the point is complete or cannot be
  // recorded.
  Event* event_for(Lock& lock, const Point& point);
  void let_go(Event* event);
  bool has_context_events() const { return device_.table().cuCtxRecordEvent != nullptr; }
  void settle(const Point& point);  // the caller saw its event complete

  CUstream handle(Slot slot) const { return streams_[slot].handle; }
  ReuseMode mode() const { return mode_; }
  std::string name(Slot slot) const;
  std::size_t pending_events() const;
  bool check(std::string* why) const;

 private:
  struct Recorded {
    std::uint64_t number;
    Event* event;
  };
  struct Stream {
    std::uint64_t issued = 0;     // number of the latest point
    std::uint64_t recorded = 0;   // the latest point an event covers
    std::uint64_t completed = 0;  // the latest point known to be over
    bool late = false;            // outlives every block
    bool active = false;          // in active_
    bool graph = false;           // stands for what graphs may replay
    bool blocking = false;        // takes part in the legacy stream's implicit order
    bool asked = false;           // whether it is blocking; until then it counts as not
    bool per_thread = false;      // its handle means it in one thread only
    bool excluded = false;
    bool advanced = false;  // in news_
    CUstream handle = nullptr;
    unsigned long long id = 0;
    Slot twin = kNone;  // of a stream: the slot of its work in graphs that cannot be watched; of any such slot: the stream
    std::uint64_t successor = 0;  // of what is gone: the context's point that stands for it, or 0
    std::vector<Recorded> events;  // oldest first
    std::unordered_map<Slot, std::uint64_t> after;  // real edges: runs after these points
  };
  // Slots of handles seen lately, where handles last.
  struct Known {
    CUstream handle = nullptr;
    Slot slot = 0;
  };
  // What a driver call needs to know of a stream.
  struct Identity {
    CUstream handle;
    unsigned long long id;
    bool per_thread;
  };

  bool ordered_by_edge(const Point& point, Slot slot) const;
  Slot ask_slot(Lock& lock, CUstream handle);
  Point record_now(Lock& lock, Slot slot) noexcept;
  Identity identity(Slot slot) const { return {streams_[slot].handle, streams_[slot].id, streams_[slot].per_thread}; }
  bool is_live(const Identity& stream) noexcept;  // does the handle still mean it, in this thread?
  void forget_handle(Slot slot);
  bool is_capturing(CUstream handle) noexcept;
  bool any_capturing(Lock& lock) noexcept;  // of the streams in this table, and of all blocking ones
  Event* new_event(Lock& lock) noexcept;    // with one user; null: the driver has none
  CUresult record(Lock& lock, Slot slot, Event*& event) noexcept;
  void keep(Slot slot, std::uint64_t number, Event* event);  // `event` covers all points up to `number`
  void poll_stream(Lock& lock, Slot slot);
  void complete_up_to(Slot slot, std::uint64_t number);
  Slot add_graph(Slot stream);
  void bury(Slot slot);  // it is gone, stream or graph
  void bury_graphs();
  void thin(Lock& lock, Slot slot);
  void activate(Slot slot) noexcept;
  void catch_up(Lock& lock, Slot slot);
  Known& known(CUstream handle) {
    return known_[(reinterpret_cast<std::uintptr_t>(handle) * 0x9E3779B97F4A7C15ull) >> 58];
  }

  Device& device_;
  ReuseMode mode_;
  bool framework_;
  unsigned announced_ = 0;  // captures under way
  std::vector<Stream> streams_;
  std::unordered_map<unsigned long long, Slot> by_id_;
  struct Capture {
    unsigned long long id;
    Slot stream, graph;
  };
  GraphWatch graphs_;
  std::vector<Capture> captures_;  // into graphs that exist
  std::vector<Slot> buried_;       // waiting for their successors
  std::vector<Slot> spare_;        // slots of graphs that are over
  std::vector<Slot> active_;  // streams with points outstanding
  std::vector<Slot> news_;    // streams of which more was found complete since the last poll
  std::array<Known, 64> known_{};
  std::deque<Event> events_;
  std::vector<Event*> free_events_;
};

}  // namespace memx
