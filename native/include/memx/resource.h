// The façade over one device's memory: what the bindings and adapters call, from any thread, without the GIL.
//
// It checks arguments, takes the locks, keeps the counters of what was asked for, and records the trace. Addresses
// are device addresses; streams are handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memx/counters.h"
#include "memx/playback.h"
#include "memx/store.h"
#include "memx/trace.h"

namespace memx {

struct Statistics {
  Demand all, small, large;
  Gauge active, inactive, host;
  Flow reserved, segments;  // device memory held, in bytes and in handles
  std::uint64_t migrated_in_bytes, migrated_out_bytes;
  std::uint64_t faulted_bytes, refilled_bytes;
  std::uint64_t prefetched_bytes, prefetched_used_bytes;
  std::uint64_t reuse_hits, out_of_memory_errors;
  std::uint64_t search_probes;  // free blocks looked at
  std::map<std::string, std::uint64_t> driver_calls;
};

// A block as a snapshot of the device shows it.
struct BlockInfo {
  enum State : std::uint8_t { kAllocated, kPending, kFree } state;  // kPending: free, but several streams' work must end
  Place place;  // of its first page, where an explicit move may have split it
  std::uint32_t tag;
  std::uint64_t address, bytes, requested;
  std::uint64_t stream;  // handle of the allocation's; of free blocks 0
};

// Where the bytes of a buffer are now.
struct Residency {
  std::uint64_t device = 0;
  std::uint64_t host = 0;      // there alone, mapped or not
  std::uint64_t moving = 0;    // between two places this moment
  std::uint64_t unbacked = 0;  // never used, let go, or to be filled again from the source
};

struct FreeBlocks {
  std::uint64_t inactive = 0;  // beside a live one
  std::uint64_t pending = 0;   // waiting for several streams
};

class Resource {
 public:
  explicit Resource(const Config& config);
  ~Resource();
  Resource(const Resource&) = delete;
  Resource& operator=(const Resource&) = delete;

  // `extra`: of a lazy resource, a source and a priority.
  std::uint64_t allocate(std::uint64_t bytes, CUstream stream, std::uint64_t align, Placement placement, std::uint32_t tag,
                         const Extra* extra = nullptr);
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

  // Serves allocations at planned places until stop_plans; several plans lie over each other in one arena.
  void use_plans(std::vector<Plan> plans);
  void begin_step(std::optional<std::uint64_t> plan);
  void stop_plans();
  struct PlanStatistics {
    std::uint64_t served = 0, departed = 0, blocked = 0, arena_bytes = 0;
  };
  PlanStatistics plan_statistics();

  struct Use {
    std::uint64_t address, offset, bytes;
    unsigned mode;
  };
  std::uint64_t begin_use(const std::vector<Use>& uses, CUstream stream);
  // See Store::expect.
  void expect(std::vector<Expected> allocations);
  Thrashing thrashing();
  std::uint64_t generation(std::uint64_t address);
  // Told, with no lock held, of each part of a live buffer that has moved; by the thread that moved it, once it is done. Not
  // of births and frees. An empty function ends it.
  struct Move {
    std::uint64_t address, bytes;
    Place place;
  };
  using Listener = std::function<void(const std::vector<Move>&)>;
  void listen(Listener listener);
  void end_use(std::uint64_t token);
  std::uint64_t prefetch(std::uint64_t address, CUstream stream);
  std::uint64_t evict(std::uint64_t address);
  void pin(std::uint64_t address);
  void unpin(std::uint64_t address);
  void rebalance();
  std::uint32_t tag_id(const std::string& name);
  std::string tag_name(std::uint32_t tag);  // empty for an unknown one
  void limit_host(std::uint32_t tag, std::uint64_t bytes);  // see Store
  void pause(std::uint32_t tag, bool keep);
  void resume(std::uint32_t tag);
  std::uint64_t trim(std::uint64_t keep_bytes);
  void read(std::uint64_t address, std::uint64_t offset, void* into, std::uint64_t bytes);

  std::uint64_t size_of(std::uint64_t address);
  // Start and requested bytes of the live buffer that covers an address; zeros if there is none.
  std::pair<std::uint64_t, std::uint64_t> extent_of(std::uint64_t address);
  Residency residency(std::uint64_t address);
  bool covers(std::uint64_t address) const;  // is it in this resource's reservation?
  std::vector<BlockInfo> blocks();           // by address
  std::uint64_t device_limit();
  void set_device_limit(std::uint64_t bytes);  // refused below what is in use
  void enable_peer(int device);                // lets another device reach everything, now and later
  bool can_be_reached_from(int device);
  Device& device() { return *device_; }
  std::uint64_t page_bytes() const { return config_.page_bytes; }
  bool forked() const;  // is this a child's copy, of no use there?
  bool is_lazy() const { return config_.lazy; }
  bool host_mappable() const { return store_->host_mappable; }
  CUstream copy_stream() const { return store_->copy_stream(); }  // memx's own, for copies to the host
  CUstream copy_in_stream() const { return store_->copy_in_stream(); }
  Statistics statistics();
  void reset_peak_statistics();
  void reset_accumulated_statistics();
  void check();
  void record_events(bool on, std::size_t most = 0);  // `most`: of the latest; 0: all
  void mark(std::uint64_t number);  // an event of that number, if events are recorded
  std::deque<TraceEvent> drain_events();
  std::deque<TraceEvent> recorded_events();  // and leaves them
  FreeBlocks free_blocks();
  // Gives everything back; every later call but free is refused. Live buffers become invalid.
  void close();

 private:
  Lock enter();       // locked; throws after a fork, a close or a sticky error
  Lock enter_gate();  // the same, past the gate
  Lock enter_even_closed();  // locked; throws after a fork, whose lock may be another thread's for ever
  Block* live_block(std::uint64_t address, const char* doing);
  void free_on(std::uint64_t address, const CUstream* stream);
  Block* planned_block(Lock& lock, const Request& request);
  void update();
  // Tells the listener at the end of its scope.
  class Telling {
   public:
    explicit Telling(Resource& resource) : resource_(resource) {}
    ~Telling() { resource_.tell(); }

   private:
    Resource& resource_;
  };
  void tell();

  Config config_;
  Locks locks_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Store> store_;
  std::uint64_t first_address_, end_address_;  // of the reservation
  std::map<std::string, std::uint32_t> tags_;
  TraceLog log_;
  std::atomic<bool> listening_ = false;
  std::shared_ptr<const Listener> listener_;
  struct Arena {
    Playback playback;
    std::uint64_t begin, end;
    std::uint32_t tag;
  };
  std::shared_ptr<Arena> arena_;  // kept by who is allocating in it while another thread ends it
  Demands demands_;
  Gauge active_;
  std::uint64_t out_of_memory_errors_ = 0;
  unsigned generation_;  // of forks
};

// Fills in what the caller left open: limits from the device, the page from its granularity. Throws for bad values.
Config checked(Config config);

}  // namespace memx
