// What happens at the façade, kept until somebody drains it: allocations, frees, recorded streams, waits.
#pragma once

#include <cstdint>
#include <vector>

namespace memx {

struct TraceEvent {
  enum Kind : std::uint8_t { kAlloc, kFree, kRecordStream, kWait } kind;
  std::uint64_t address;
  std::uint64_t bytes;   // as asked
  std::uint64_t stream;  // handle
  std::uint64_t other;   // kAlloc, kFree: the tag; kWait: the stream waited for
};

class TraceLog {
 public:
  void enable(bool on) { on_ = on; }
  void add(const TraceEvent& event) {
    if (on_) events_.push_back(event);
  }
  std::vector<TraceEvent> drain() {
    std::vector<TraceEvent> out;
    out.swap(events_);
    return out;
  }

 private:
  bool on_ = false;
  std::vector<TraceEvent> events_;
};

}  // namespace memx
