// Physical memory by tier: handles of 1, 2, 4 or 8 pages on the device or in host memory that the device can
// map, and pinned host pages that hold contents with no address on the device. Created within a limit, kept
// for reuse, given back on trim. Knows no addresses.
//
// Invariant: held_bytes(tier) never exceeds its limit; kHost and kPinned share the host's. Only one thread at a time
// calls it (whoever passed the gate), without the short lock; anybody may read the counters.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memx/counters.h"
#include "memx/driver.h"

namespace memx {

enum class Tier : std::uint8_t { kDevice, kHost, kPinned };
constexpr unsigned kMaxOrder = 3;        // a handle has 1 << order pages
constexpr unsigned kMaxPinnedOrder = 6;  // the same of pinned pages that go and come back together

struct Handle {
  std::uint64_t value = 0;  // CUmemGenericAllocationHandle, or the address of pinned pages
  std::uint8_t order = 0;
  Tier tier = Tier::kDevice;
  bool fresh = false;  // created for the request in progress: released, not cached, if that fails
};

class Physical {
  struct Held {
    Flow bytes, handles;
  };

 public:
  Physical(Device& device, std::uint64_t page_bytes, std::uint64_t device_limit, std::uint64_t host_limit);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  // Appends handles of `pages` pages in all, cached ones first, the others created in a binary decomposition.
  // All or nothing. CUDA_ERROR_OUT_OF_MEMORY if the limit or the driver has no room (nothing is given up for
  // it beyond cached handles too large to be of use), another code as the driver said it.
  // `release`: whether cached handles may be released on the way (not while a stream is captured). `together`: pinned
  // pages in handles of many.
  CUresult acquire(Tier tier, std::uint64_t pages, std::vector<Handle>& out, bool release = true, bool together = false);
  // Takes a handle that backs nothing any more.
  void put(Handle handle);
  // Undoes an acquire.
  void give_back(std::vector<Handle>& handles);
  // Releases cached memory until at most keep_bytes of the tier are cached; returns the bytes released.
  std::uint64_t trim(Tier tier, std::uint64_t keep_bytes);

  std::uint64_t page_bytes() const { return page_bytes_; }
  std::uint64_t limit(Tier tier) const { return tier == Tier::kDevice ? device_limit_.load() : host_limit_; }
  std::uint64_t held_bytes(Tier tier) const { return copy(held_[static_cast<int>(tier)].bytes).current; }
  std::uint64_t cached_bytes(Tier tier) const { return cached_bytes_[static_cast<int>(tier)]; }
  std::uint64_t host_bytes() const { return held_bytes(Tier::kHost) + held_bytes(Tier::kPinned); }
  // Lowering it takes nothing from anybody: cached memory goes, and what is in use stays.
  void set_device_limit(std::uint64_t bytes);
  // What acquire could still provide without anybody giving anything up.
  std::uint64_t room_bytes(Tier tier) const;
  Flow reserved() const { return copy(held_[0].bytes); }     // device memory, in bytes
  Flow segments() const { return copy(held_[0].handles); }  // the same in handles
  std::atomic<std::uint64_t> peak_host_bytes = 0;
  void reset_peaks();
  void reset_totals();

  CUmemAllocationProp properties(Tier tier) const;

 private:
  CUresult create(Tier tier, unsigned order, Handle& out);
  CUresult release(const Handle& handle);
  Flow copy(const Flow& flow) const {
    std::lock_guard<std::mutex> lock(counts_);
    return flow;
  }
  void count(Tier tier, bool created, std::uint64_t bytes);
  bool shrink_host_cache(Tier wanted, std::uint64_t bytes);

  Device& device_;
  std::uint64_t page_bytes_;
  std::atomic<std::uint64_t> device_limit_;
  std::uint64_t host_limit_;
  mutable std::mutex counts_;  // of held_
  Held held_[3];
  std::atomic<std::uint64_t> cached_bytes_[3] = {};
  std::vector<Handle> cached_[3][kMaxPinnedOrder + 1];
};

}  // namespace memx
