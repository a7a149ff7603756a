// The façade over one device's memory: what the bindings and adapters call, from any thread, without the GIL.
//
// It checks arguments, takes the lock, keeps the counters of what was asked for, and records the trace. Addresses
// are device addresses; streams are handles.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "memx/store.h"
#include "memx/trace.h"

namespace memx {

struct Gauge {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  void set(std::uint64_t value) {
    current = value;
    if (value > peak) peak = value;
  }
};

struct Statistics {
  Gauge requested, allocated, active, inactive, reserved, host;
  std::uint64_t migrated_in_bytes, migrated_out_bytes;
  std::uint64_t allocations, frees, reuse_hits;
  std::map<std::string, std::uint64_t> driver_calls;
};

class Resource {
 public:
  explicit Resource(const Config& config);
  ~Resource();
  Resource(const Resource&) = delete;
  Resource& operator=(const Resource&) = delete;

  std::uint64_t allocate(std::uint64_t bytes, CUstream stream, std::uint64_t align, bool host_ok, std::uint32_t tag);
  void free(std::uint64_t address);  // ordered on the allocation's stream
  void free(std::uint64_t address, CUstream stream);
  void record_stream(std::uint64_t address, CUstream stream);
  void note_wait(CUstream stream, CUstream on);
  void exclude_stream(CUstream stream);
  // Frameworks only. A capture is about to begin, or has ended; calls nest.
  void announce_capture(bool begin);
  // The tag is a framework's private memory pool: what a stream frees while it is captured, it may have again under
  // the same tag while it is captured. retire_tag: that pool is gone, and so is every graph that used it.
  void private_tag(std::uint32_t tag);
  void retire_tag(std::uint32_t tag);

  struct Use {
    std::uint64_t address, offset, bytes;
    unsigned mode;
  };
  std::uint64_t begin_use(const std::vector<Use>& uses, CUstream stream);
  void end_use(std::uint64_t token);
  std::uint64_t prefetch(std::uint64_t address, CUstream stream);
  std::uint64_t evict(std::uint64_t address);
  void pin(std::uint64_t address);
  void unpin(std::uint64_t address);
  void rebalance();
  std::uint32_t tag_id(const std::string& name);
  std::string tag_name(std::uint32_t tag);  // empty for an unknown one
  void pause(std::uint32_t tag, bool keep);
  void resume(std::uint32_t tag);
  std::uint64_t trim(std::uint64_t keep_bytes);
  void read(std::uint64_t address, std::uint64_t offset, void* into, std::uint64_t bytes);

  std::uint64_t size_of(std::uint64_t address);
  std::uint64_t page_bytes() const { return config_.page_bytes; }
  bool host_mappable() const { return store_->host_mappable; }
  CUstream copy_stream() const { return store_->copy_stream(); }  // memx's own
  Statistics statistics();
  void reset_peak_statistics();
  void check();
  void record_events(bool on);
  std::vector<TraceEvent> drain_events();
  // Gives everything back; every later call but free is refused. Live buffers become invalid.
  void close();

 private:
  Lock enter();  // locked; throws after a fork, a close or a sticky error
  Lock enter_even_closed();  // locked; throws after a fork, whose lock may be another thread's for ever
  Block* live_block(std::uint64_t address, const char* doing);
  void free_on(std::uint64_t address, const CUstream* stream);
  void update();

  Config config_;
  std::mutex mutex_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Store> store_;
  std::map<std::string, std::uint32_t> tags_;
  TraceLog log_;
  Gauge requested_, allocated_, active_;
  std::uint64_t allocations_ = 0, frees_ = 0;
  unsigned generation_;  // of forks
};

// Fills in what the caller left open: limits from the device, the page from its granularity. Throws for bad values.
Config checked(Config config);

}  // namespace memx
