// Which handle backs which page of the reservation, and with what access.
//
// A Mapping is one handle at one place: the unit that is mapped and unmapped. Every page has at most one; a page
// may have its contents in a pinned host page as well (`swap`), or only there if it has no mapping. Mapping many handles in
// a row is one transaction with one access call.
//
// Counters kept here: idle bytes (mappings with nothing alive on them: fungible) and inactive bytes (what is free
// in mappings that have something alive).
//
// Members that take a Lock let go of it for driver calls; a mapping is busy meanwhile, and one that is being made is not
// in the table. Only one thread at a time calls those (whoever passed the gate).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "memx/address.h"
#include "memx/driver.h"
#include "memx/lock.h"
#include "memx/points.h"
#include "memx/physical.h"
#include "memx/sparse.h"

namespace memx {

struct Mapping {
  Handle handle;
  std::uint64_t first = 0;       // page
  std::uint64_t live_bytes = 0;  // of blocks that are allocated
  std::uint64_t rank = 0;        // among those of one priority the lowest and the highest may give way: see Eviction
  std::int32_t priority = 0;     // the lower gives way first
  std::uint32_t pins = 0;        // uses in progress: not moved
  bool busy = false;             // being moved: not used
  bool kept = false;             // of an arena: not idle when nothing is alive on it
  bool stuck = false;            // a rollback could not unmap it: its contents mean nothing
  bool referenced = false;       // used since the clock's hand last passed
  PointSet uses;                 // lazy: work queued on it
  Mapping* prev = nullptr;
  Mapping* next = nullptr;

  std::uint64_t pages() const { return 1ull << handle.order; }
  std::uint64_t end() const { return first + pages(); }
};

// Intrusive list of mappings, oldest first.
class MappingList {
 public:
  Mapping* front() const { return front_; }
  Mapping* back() const { return back_; }
  bool empty() const { return front_ == nullptr; }
  void push_back(Mapping* mapping);
  void push_front(Mapping* mapping);
  void remove(Mapping* mapping);

 private:
  Mapping* front_ = nullptr;
  Mapping* back_ = nullptr;
};

// Those with something alive on them that may give way, in order.
class Ranking {
 public:
  struct ByRank {
    bool operator()(const Mapping* a, const Mapping* b) const {
      return a->rank != b->rank ? a->rank < b->rank : a->first < b->first;
    }
  };
  using Order = std::set<Mapping*, ByRank>;

  void add(Mapping* mapping) { by_priority_[mapping->priority].insert(mapping); }
  void remove(Mapping* mapping) { by_priority_[mapping->priority].erase(mapping); }
  void move(Mapping* mapping, std::uint64_t rank, std::int32_t priority);
  const std::map<std::int32_t, Order>& by_priority() const { return by_priority_; }

 private:
  std::map<std::int32_t, Order> by_priority_;
};

struct Page {
  Mapping* mapping = nullptr;
  std::uint64_t swap = 0;      // address of a pinned page that holds the contents; beside a mapping: the same ones
  std::uint64_t last_use = 0;  // by the store's clock; 0: never since what is there was allocated
  std::uint32_t interval = 0;  // between the last two
  std::uint32_t swap_tag = 0;  // whose share of the host `swap` is
  std::uint32_t generation = 0;  // how often another page, or none, has come to be here
  std::uint32_t pins = 0;      // the user's: never a victim
  Point copying;               // of memx's copy streams: the last copy between the page and `swap`
  bool transit = false;        // between mappings: the address is neither free nor unbacked for good
  bool ahead = false;          // brought to the device before its use, and not used since
  bool hollow = false;         // backed without its contents, for a use that overwrites it: until then they are in `swap` alone
};

class PageTable {
 public:
  // `ranked`: keep the order in which device mappings give way.
  PageTable(Device& device, AddressSpace& space, Physical& physical, bool ranked);
  ~PageTable();
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  struct Failure {
    CUresult result = CUDA_SUCCESS;
    Call call = Call::cuMemMap;
    explicit operator bool() const { return result != CUDA_SUCCESS; }
  };

  // Maps `handles` one after the other from page `first` on and grants access, all or nothing; on failure the
  // handles are the caller's again, but for those of stuck mappings, which stay here.
  // They have nothing alive on them until the caller says so (set_live), under the same lock.
  Failure map(Lock& lock, std::uint64_t first, std::vector<Handle>& handles);
  // Unmaps one; its handle goes back to `physical`. On failure nothing has changed.
  Failure unmap(Lock& lock, Mapping* mapping);
  // The same for several, those that lie one after the other in one call; those that could not be unmapped are left in
  // `mappings`, and the last reason is returned.
  Failure unmap(Lock& lock, std::vector<Mapping*>& mappings);
  // Unmaps one and hands its handle, with its contents, to the caller.
  Failure detach(Lock& lock, Mapping* mapping, Handle& out);
  // Gives a mapping up that cannot be unmapped now.
  void strand(Mapping* mapping);
  // Lets another device reach every mapping, present and future; all or nothing, as far as future ones go.
  Failure add_peer(Lock& lock, int peer);
  // Tries to unmap stuck mappings again; true if none is left.
  bool unstick(Lock& lock);

  Page& page(std::uint64_t index) { return pages_[index]; }
  // Fetches what remove_live will look at there, while the caller looks for the block.
  void foresee(std::uint64_t offset) const { __builtin_prefetch(&pages_[offset >> page_shift_]); }
  Mapping* mapping_at(std::uint64_t index) { return pages_[index].mapping; }
  CUdeviceptr address(std::uint64_t index) const { return space_.base() + index * space_.page_bytes(); }

  // Blocks in [begin, end) bytes came to life or ended.
  void add_live(std::uint64_t begin, std::uint64_t end);
  void remove_live(std::uint64_t begin, std::uint64_t end);
  // The mappings of [begin, end) are an arena's, or are so no more.
  void keep(std::uint64_t begin, std::uint64_t end, bool kept);
  void set_live(Mapping* mapping, std::uint64_t bytes);
  // The most recently used now.
  void touch(Mapping* mapping, std::uint64_t rank, std::int32_t priority);

  MappingList& live(Tier tier) { return live_[static_cast<int>(tier)]; }
  MappingList& idle(Tier tier) { return idle_[static_cast<int>(tier)]; }
  const Ranking& ranking() const { return ranking_; }
  std::uint64_t idle_bytes(Tier tier) const { return idle_bytes_[static_cast<int>(tier)]; }
  std::uint64_t mapped_bytes(Tier tier) const { return mapped_bytes_[static_cast<int>(tier)]; }
  std::uint64_t stuck_bytes(Tier tier) const;
  std::uint64_t inactive_bytes() const { return inactive_bytes_; }
  std::uint64_t peak_inactive_bytes = 0;

 private:
  std::uint64_t bytes(const Mapping* mapping) const { return mapping->pages() * space_.page_bytes(); }
  void set_access();
  CUresult allow(std::uint64_t first, std::uint64_t pages, bool host);
  CUresult unmap_pages(const Mapping* mapping);
  Handle forget(Mapping* mapping);  // it is unmapped
  void appear(Mapping* mapping);
  void enlist(Mapping* mapping);
  void delist(Mapping* mapping);
  // The mapping that [begin, end) lies in, if it is in one.
  Mapping* only_mapping(std::uint64_t begin, std::uint64_t end) {
    Mapping* mapping = pages_[begin >> page_shift_].mapping;
    return mapping == pages_[(end - 1) >> page_shift_].mapping ? mapping : nullptr;
  }
  template <class Change>
  void change_live(std::uint64_t begin, std::uint64_t end, Change change);

  Device& device_;
  AddressSpace& space_;
  Physical& physical_;
  unsigned page_shift_;
  std::vector<int> peers_;
  std::vector<CUmemAccessDesc> access_;
  SparseArray<Page> pages_;
  MappingList live_[2], idle_[2], kept_, stuck_;  // kept_: those with nothing alive
  const bool ranked_;
  Ranking ranking_;  // of live_[device]
  std::uint64_t idle_bytes_[2] = {}, mapped_bytes_[2] = {};
  std::uint64_t inactive_bytes_ = 0;
};

}  // namespace memx
