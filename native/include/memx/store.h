// What backs what, and when that changes: the policy over blocks, pages and tiers.
//
// Eager blocks are backed whole from birth, on the device or on host pages at their address, and move only by an
// explicit call. Lazy blocks are backed page by page while in use; idle ones give way, coldest first, to pinned
// host pages (`swap`) and come back at the same address.
//
// Every member is called with the resource's short lock held. Those that take the Lock may let go of it for the driver,
// to wait for work or to copy; what they learned before is then looked at again. What changes which page backs what is
// done past the gate. Mappings being copied or unmapped are `busy`, those in use are pinned, and neither is moved;
// pages between two mappings are in `transit`. Each change either happens whole or leaves blocks, contents and
// counters as they were.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "memx/address.h"
#include "memx/driver.h"
#include "memx/lock.h"
#include "memx/mapping.h"
#include "memx/order.h"
#include "memx/physical.h"
#include "memx/pool.h"

namespace memx {

struct Config {
  int device = 0;
  std::uint64_t device_limit = 0;
  std::uint64_t host_limit = 0;
  ReuseMode reuse = ReuseMode::kDefault;
  bool lazy = false;
  bool oversubscribe = true;
  std::uint64_t page_bytes = 0;
  bool framework = false;  // the caller keeps its streams and announces its captures: see StreamTable
};

struct Request {
  std::uint64_t requested = 0;  // bytes, as asked
  std::uint64_t bytes = 0;      // rounded up to the granularity
  std::uint64_t align = kGranularity;
  Slot slot = 0;
  std::uint32_t tag = 0;
  bool host_ok = true;
  Slot graph = StreamTable::kNone;  // in a capture into a private tag: see StreamTable::usable
};

enum Mode : unsigned { kRead = 1, kWrite = 2 };

struct Operand {
  Block* block;
  std::uint64_t begin, end;  // bytes from the start of the reservation
  unsigned mode;
};

inline Place place_for(Tier tier) { return tier == Tier::kDevice ? Place::kDevice : Place::kHost; }

class Store {
 public:
  Store(Device& device, const Config& config, Locks& locks);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // A live block, or an error that says why not.
  Block* allocate(Lock& lock, Request& request);
  // Ends a block; its points are what its pages still wait for.
  void release(Block* block);
  // Device memory that stays for planned blocks, under a tag of its own; returns where it begins.
  std::uint64_t make_arena(Lock& lock, std::uint64_t bytes, std::uint32_t tag);
  void end_arena(std::uint64_t begin, std::uint64_t end, std::uint32_t tag);  // past the gate
  // A live block there, or null: something there is alive, or not ordered before the stream.
  Block* allocate_at(Lock& lock, const Request& request, std::uint64_t begin);
  // What a stream frees in captures under this tag it may have again in them.
  void make_private(std::uint32_t tag);
  // The tag's memory becomes ordinary, and its graphs are gone.
  void retire(std::uint32_t tag);  // past the gate

  // Backs the operands on the device and keeps them there until end_use; all or nothing.
  std::uint64_t begin_use(Lock& lock, const std::vector<Operand>& operands, Slot slot);
  void end_use(Lock& lock, std::uint64_t token);
  void note_use(Block* block, Slot slot);  // until its free

  // Explicit moves; each returns the bytes of the block left where they were because others share the page.
  std::uint64_t prefetch(Lock& lock, Block* block, Slot slot);
  std::uint64_t evict(Lock& lock, Block* block);
  void pin(Block* block);
  void unpin(Block* block);
  void rebalance(Lock& lock);
  void pause(Lock& lock, std::uint32_t tag, bool keep);
  void resume(Lock& lock, std::uint32_t tag);

  std::uint64_t trim(Lock& lock, std::uint64_t keep_bytes);
  void read(Lock& lock, Block* block, std::uint64_t begin, std::uint64_t end, void* into);
  // Waits until the point is over, without the lock; fails naming the stream after the bound.
  void wait(Lock& lock, const Point& point);
  // The same for everything queued in the context.
  void drain(Lock& lock);
  void synchronize_context(Lock& lock);

  bool check(Lock& lock, std::string* why);
  std::string out_of_memory(const Request& request, CUresult result);

  Device& device;
  const Config config;
  StreamTable order;
  AddressSpace space;
  Physical physical;
  PageTable table;
  Pool pool;
  std::uint64_t migrated_in_bytes = 0;
  std::uint64_t migrated_out_bytes = 0;
  std::uint64_t reuse_hits = 0;
  CUstream copy_stream() const { return stream_; }
  bool host_mappable = false;

 private:
  struct Use {
    std::vector<Mapping*> mappings;
    Slot slot;
    std::thread::id owner;
  };
  // A run of pages to be backed, in the order of their addresses.
  struct Run {
    std::uint64_t first, pages;
  };
  struct Copy {
    CUdeviceptr device;
    std::uint64_t host;  // address of a pinned page
    std::uint64_t bytes;
    bool in;  // host to device
  };
  enum class Room { kMade, kHostFull, kInUse };
  using Skip = std::vector<bool>;  // by page of the runs: contents are about to be overwritten

  // allocate.cpp
  Block* find_or_grow(Lock& lock, const Request& request, Tier tier, CUresult& result);
  Block* grow(Lock& lock, const Request& request, Tier tier, bool capturing, CUresult& result);
  KeyId key_for(const Request& request, Place place) const;
  Block* find_ordered(Lock& lock, const Request& request, KeyId key, bool capturing);
  bool hold_for(Lock& lock, Block* block, Slot slot);
  bool blocking_points(Lock& lock, const Request& request, Tier tier, PointSet& out);
  bool idle_points(Lock& lock, Tier tier, std::uint64_t bytes, PointSet& out);
  std::uint64_t reclaim_idle(Lock& lock, Tier tier, std::uint64_t bytes);
  bool reclaimable(const Mapping* mapping);
  void give_up_addresses(std::uint64_t first, std::uint64_t end);
  Block* allocate_lazy(Lock& lock, const Request& request);

  // residency.cpp
  bool hold_pages(const std::vector<std::uint64_t>& pages, std::vector<Mapping*>& held, std::vector<Run>& runs,
                  Lock& lock);
  bool swapped(const std::vector<Run>& runs);
  bool pinned(const Mapping* mapping);  // by the user, some of it
  Room make_room(Lock& lock, std::uint64_t bytes);
  void hold(Mapping* mapping);
  void let_go(std::vector<Mapping*>& mappings);
  bool in_use_by_this_thread() const;
  void wait_for_change(Lock& lock, const char* what);

  // swap.cpp
  void swap_out(Lock& lock, const std::vector<Mapping*>& victims, bool keep);
  // New mappings come back held.
  void swap_in(Lock& lock, const std::vector<Run>& runs, const Skip& skip, Tier tier, std::vector<Mapping*>& out);
  void copy(Lock& lock, const std::vector<Copy>& copies);
  CUresult finish_copies();
  void drop_swap(std::uint64_t page);
  void collect_dropped();
  std::uint64_t live_in_page(std::uint64_t page);

  // arena.cpp
  bool planned(const Block* block);

  // moves.cpp
  struct Relocation;
  void wait_for_relocations(Lock& lock);
  PageTable::Failure move(Lock& lock, std::uint64_t first_page, Tier to);
  bool restore(Lock& lock, std::uint64_t first, Handle handle);
  void set_transit(std::uint64_t first, std::uint64_t pages, bool on);
  void wait_for_uses(Lock& lock, std::uint64_t first_page);
  std::vector<std::uint64_t> owned_mappings(Block* block, Tier tier, std::uint64_t& skipped);
  std::vector<Block*> tagged(std::uint32_t tag);
  std::vector<Run> unbacked(std::uint32_t tag);
  void probe_host(Lock& lock);

  bool is_private(std::uint32_t tag) const { return tag < private_.size() && private_[tag]; }

  CUstream stream_ = nullptr;  // memx's own, for copies
  std::vector<bool> private_;  // by tag
  std::vector<std::uint64_t> dropped_;  // pinned pages that hold nobody's contents any more
  std::condition_variable_any changed_;
  std::unordered_map<std::uint64_t, Use> uses_;
  std::uint64_t next_use_ = 1;
  std::uint64_t pinned_bytes_ = 0;  // of mappings in use
  unsigned moving_ = 0;             // copies in progress, with the lock let go
  unsigned relocating_ = 0;         // explicit moves of eager pages: nobody gets memory on those pages meanwhile
};

}  // namespace memx
