// What happens at the façade, kept until somebody drains it: allocations, frees, recorded streams, waits; and marks, which
// say where among them something else happened.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>

namespace memx {

struct TraceEvent {
  enum Kind : std::uint8_t { kAlloc, kFree, kRecordStream, kWait, kOutOfMemory, kMark } kind;
  std::uint64_t address;
  std::uint64_t bytes;   // as asked
  std::uint64_t stream;  // handle
  std::uint64_t other;   // kAlloc, kFree: the tag; kWait: the stream waited for; kMark: its number
  std::uint64_t time_us = 0;  // since the epoch
};

class TraceLog {
 public:
  // `most`: how many of the latest events to keep; 0: all.
  void enable(bool on, std::size_t most = 0) {
    on_ = on;
    most_ = most;
  }
  void add(TraceEvent::Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, std::uint64_t other) {
    if (on_) append({kind, address, bytes, stream, other});
  }
  std::deque<TraceEvent> drain() { return std::exchange(events_, {}); }
  const std::deque<TraceEvent>& events() const { return events_; }

 private:
  void append(TraceEvent event) {
    event.time_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    events_.push_back(event);
    if (most_ && events_.size() > most_) events_.pop_front();
  }
  bool on_ = false;
  std::size_t most_ = 0;
  std::deque<TraceEvent> events_;
};

}  // namespace memx
