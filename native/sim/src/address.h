// The address space: reservations, and the regions inside and outside them that memory backs. Called with the
// driver's lock held.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "physical.h"

namespace memxsim {

struct Context;
struct GraphAllocation;

enum Access : uint8_t { kNoAccess = 0, kRead = 1, kReadWrite = 3 };

struct Region {
  enum class Kind { mapping, device, pinned, registered, pool, graph };

  uint64_t va = 0, bytes = 0;
  Kind kind = Kind::mapping;
  PhysRef phys;
  std::array<uint8_t, kMaxDevices> device_access{};
  uint8_t host_access = kNoAccess;
  uint64_t buffer_id = 0;
  Context* context = nullptr;    // null for mappings
  void* pool = nullptr;          // CUmemoryPool of a pool allocation
  GraphAllocation* graph_memory = nullptr;
  unsigned host_flags = 0;       // as given to cuMemHostAlloc or cuMemHostRegister
  bool freed_in_order = false;   // a pool allocation whose stream-ordered free is queued
  UseList uses;                  // through this region, by stream; for what is unmapped under use
  std::optional<AccessRecord> over;  // the free after which nothing may be queued that uses it

  uint64_t end() const { return va + bytes; }
};

struct Reservation {
  uint64_t va = 0, bytes = 0;
  uint64_t end() const { return va + bytes; }
};

// A piece of an operand: consecutive bytes of one region.
struct Span {
  char* data = nullptr;
  uint64_t bytes = 0;
  PhysRef keep;
};

class AddressSpace {
 public:
  explicit AddressSpace(Store& store) : store_(store) {}

  uint64_t reserve(uint64_t bytes, uint64_t alignment, uint64_t hint);  // 0: refused by the system
  void unreserve(const Reservation& reservation);
  const Reservation* reservation_at(uint64_t va) const;     // that contains va
  const Reservation* reservation_starting(uint64_t va) const;
  size_t reservations() const { return reservations_.size(); }

  Region& add(Region region);
  void remove(uint64_t va);
  Region* find(uint64_t va);           // that contains va
  Region* starting_at(uint64_t va);
  bool overlaps(uint64_t va, uint64_t bytes) const;
  // Regions that together are exactly [va, va + bytes), in order; empty if there is a gap or a part.
  std::vector<Region*> exactly(uint64_t va, uint64_t bytes);
  // Regions that cover [va, va + bytes) with no gap; empty otherwise.
  std::vector<Region*> covering(uint64_t va, uint64_t bytes);
  bool covered(uint64_t va, uint64_t bytes);

  // Whether `device` may access the range; appends its spans if so.
  bool resolve(int device, uint64_t va, uint64_t bytes, bool write, std::vector<Span>& spans);

  // Addresses for cuMemAlloc and pools: never handed out twice in a row, with a gap after each.
  uint64_t take_device_va(uint64_t bytes);
  void give_device_va(uint64_t va);

  // What `device` may do with cuMemAlloc memory of `owner`, now and later.
  void grant_peer(int owner, int device, uint8_t access);
  std::vector<Region*> allocations_of(int device);
  void grant_pool(const void* pool, const uint8_t (&access)[kMaxDevices]);
  uint8_t peer_access(int owner, int device) const { return peers_[owner][device]; }

  bool map_to_cpu(Region& region, uint8_t access);  // a host-located mapping; false: the system refuses
  void unmap_from_cpu(Region& region);

  size_t mappings() const { return mappings_; }
  const std::map<uint64_t, Region>& regions() const { return regions_; }

 private:
  Store& store_;
  std::map<uint64_t, Reservation> reservations_;
  std::map<uint64_t, Region> regions_;
  size_t mappings_ = 0;
  uint64_t arena_ = 0, arena_next_ = 0, arena_end_ = 0;
  std::multimap<uint64_t, uint64_t> arena_free_;  // bytes -> va
  std::map<uint64_t, uint64_t> arena_taken_;      // va -> bytes
  uint64_t next_buffer_id_ = 1;
  std::array<std::array<uint8_t, kMaxDevices>, kMaxDevices> peers_{};
};

}  // namespace memxsim
