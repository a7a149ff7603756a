// What backs what, and when that changes: the policy over blocks, pages and tiers.
//
// Eager blocks are backed whole from birth, on the device or on host pages at their address, and move only by an
// explicit call. Lazy blocks are backed page by page while in use; idle ones give way, as the eviction policy says, to
// pinned host pages (`swap`) and come back at the same address. The host page stays, as far as the host has room, until
// the device's is written: then it gives way without a copy. Blocks with a source are never copied out, but filled again.
//
// Every member is called with the resource's short lock held. Those that take the Lock may let go of it for the driver,
// to wait for work or to copy; what they learned before is then looked at again. What changes which page backs what is
// done past the gate. Mappings being copied or unmapped are `busy`, those in use are pinned, and neither is moved;
// pages between two mappings are in `transit`. Each change either happens whole or leaves blocks, contents and
// counters as they were.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memx/address.h"
#include "memx/driver.h"
#include "memx/eviction.h"
#include "memx/lock.h"
#include "memx/mapping.h"
#include "memx/order.h"
#include "memx/parts.h"
#include "memx/physical.h"
#include "memx/pool.h"
#include "memx/recurrence.h"
#include "memx/runs.h"

namespace memx {

struct Config {
  int device = 0;
  std::uint64_t device_limit = 0;
  std::uint64_t host_limit = 0;
  ReuseMode reuse = ReuseMode::kDefault;
  bool lazy = false;
  bool oversubscribe = true;
  std::uint64_t page_bytes = 0;
  EvictionPolicy eviction = EvictionPolicy::kCost;
  std::uint64_t low_water = 0;   // bytes of device memory that are to be had without a copy
  std::uint64_t look_ahead = 0;  // bytes brought to the device before their use, at most
  bool framework = false;  // the caller keeps its streams and announces its captures: see StreamTable
};

// Where a block's contents come from, whenever its pages are brought to the device.
class Source {
 public:
  virtual ~Source() = default;
  // Puts the block's bytes from `offset` on into `into`; called from any thread, with no lock held. May throw.
  virtual void fill(void* into, std::uint64_t offset, std::uint64_t bytes) = 0;
};

// Uses of an allocation to come, by number of the use, ascending.
struct Expected {
  struct Use {
    std::uint64_t number;
    bool overwrites;  // all of it, without reading it
  };
  std::vector<Use> uses;
  bool kept = false;  // its contents matter after the last
  bool on_host = false;  // eager: born there
};

// What the store knows of a block beyond its place.
struct Extra {
  std::shared_ptr<Source> source;
  std::int32_t priority = 0;  // pages of the lower give way first
  std::shared_ptr<const Expected> expected;
  std::size_t next = 0;  // of its uses
  std::uint64_t due = 0;  // when it stands in Store::upcoming_; 0: it does not
  bool let_go = false;   // nobody was to read it, and its contents are gone
  std::vector<std::uint64_t> unfilled;  // pages of its that were on the device before it, without its contents; ascending
};

// Pages of live blocks changed place: now on the device, mapped on the host, or not reachable.
struct Moved {
  std::uint64_t begin, end;  // bytes of one block, from the start of the reservation
  Place place;
};

struct Thrashing {
  std::uint64_t uses = 0;  // lately, that these are counted over
  std::uint64_t used_bytes = 0, moved_bytes = 0, working_set_bytes = 0;
};

// Which tiers an eager block may be born on.
enum class Placement : std::uint8_t { kDevice, kPreferDevice, kHost };

struct Request {
  std::uint64_t requested = 0;  // bytes, as asked
  std::uint64_t bytes = 0;      // rounded up to the granularity
  std::uint64_t align = kGranularity;
  Slot slot = 0;
  std::uint32_t tag = 0;
  Placement placement = Placement::kPreferDevice;
  const Extra* extra = nullptr;
  Slot graph = StreamTable::kNone;  // in a capture into a private tag: see StreamTable::usable
};

enum Mode : unsigned { kRead = 1, kWrite = 2 };

struct Operand {
  Block* block;
  std::uint64_t begin, end;  // bytes from the start of the reservation
  unsigned mode;
};

inline constexpr const char* kLetGo =
    "this buffer's contents were let go, because it was said (expect) that nothing would read them again: say it of what is true, "
    "or write the buffer before it is read";

inline Place place_for(Tier tier) { return tier == Tier::kDevice ? Place::kDevice : Place::kHost; }

class Store {
 public:
  Store(Device& device, const Config& config, Locks& locks);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // A live block, or an error that says why not.
  Block* allocate(Lock& lock, Request& request);
  // Ends a block; its points are what its pages still wait for. Its source, whose end may be anybody's code, is the
  // caller's to end without the lock.
  std::shared_ptr<Source> release(Block* block) {
    if (config.lazy || block->moved || block->known || block->pins) return release_with_pages(block);
    table.remove_live(block->begin, block->end());
    pool.release(block);
    return nullptr;
  }
  // Device memory that stays for planned blocks, under a tag of its own; returns where it begins.
  std::uint64_t make_arena(Lock& lock, std::uint64_t bytes, std::uint32_t tag);
  void end_arena(std::uint64_t begin, std::uint64_t end, std::uint32_t tag);  // past the gate
  // A live block there, or null: something there is alive, or not ordered before the stream.
  Block* allocate_at(Lock& lock, const Request& request, std::uint64_t begin);
  // What a stream frees in captures under this tag it may have again in them.
  void make_private(std::uint32_t tag);
  // The tag's memory becomes ordinary, and its graphs are gone.
  void retire(std::uint32_t tag);  // past the gate

  // Backs the operands on the device and keeps them there until end_use; all or nothing. Work queued on the slot from now on
  // follows copies of their contents that are under way; not if it does not use them yet.
  std::uint64_t begin_use(Lock& lock, const std::vector<Operand>& operands, Slot slot, bool now = true);
  void end_use(Lock& lock, std::uint64_t token);
  void note_use(Block* block, Slot slot);  // until its free
  // The next allocations and the next uses (begin_use) will be these, in this order. Nothing depends on it but what gives
  // way, and whether contents that nobody is to read again are kept.
  void expect(std::vector<Expected> allocations);
  Thrashing thrashing();
  // From now on, what moves is kept for take_moved.
  void watch_moves(bool on) { watching_ = on; }
  std::vector<Moved> take_moved() { return std::exchange(moved_, {}); }
  // How often another page, or none, has come to be at one of the block's addresses.
  std::uint64_t generation(Block* block);

  // Explicit moves; each returns the bytes of the block left where they were because others share the page.
  std::uint64_t prefetch(Lock& lock, Block* block, Slot slot);
  std::uint64_t evict(Lock& lock, Block* block);
  void pin(Block* block);
  void unpin(Block* block);
  void rebalance(Lock& lock);
  // Most host memory for one tag's contents, within that for all; kNever: no such limit.
  void limit_host(std::uint32_t tag, std::uint64_t bytes);
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
  std::uint64_t refilled_bytes = 0;
  std::uint64_t faulted_bytes = 0;  // brought to the device because they were used, copied or not
  std::uint64_t prefetched_bytes = 0, prefetched_used_bytes = 0;  // copied in before a use asked for them; of those, used then
  CUstream copy_stream() const { return stream_; }
  CUstream copy_in_stream() const { return in_stream_; }
  bool host_mappable = false;

 private:
  struct Use {
    std::vector<Mapping*> mappings;
    Slot slot;
    std::thread::id owner;
  };
  struct Copy {
    CUdeviceptr device;
    std::uint64_t host;  // address of a pinned page
    std::uint64_t bytes;
    bool in;  // host to device
  };
  // What it takes to have a page away.
  enum class Fate { kNothing, kDead, kRefill, kClean, kDirty };
  struct Slab {
    Handle handle;
    std::uint64_t used;  // pages
  };
  enum class Room { kMade, kHostFull, kInUse };
  // Parts of a page and where their contents come from.
  struct Refill {
    struct Part {
      const Block* block;  // may be another, or none, once the lock was let go
      std::shared_ptr<Source> source;
      std::uint64_t at, offset, bytes;  // in the page, in the block
    };
    std::uint64_t page;
    std::vector<Part> parts;  // ascending
  };
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

  // Runs on their way to the device, their pages in transit and their mappings busy.
  struct Arrival {
    std::vector<Run> runs;
    Tier tier;
    std::uint64_t cached_before;
    std::vector<std::vector<Handle>> handles;  // not mapped yet
    std::vector<Mapping*> made;
    std::vector<Refill> refills;
    std::uint64_t copied = 0;
    bool ahead = false;  // of its use
    CUresult result = CUDA_SUCCESS;
    Call call = Call::cuStreamSynchronize;
  };

  // residency.cpp
  // Part after part, each copied in while room is made for the next, and not waited for. `again`: another thread was there
  // meanwhile.
  Room bring(Lock& lock, const std::vector<Run>& runs, const Skip& skip, Slot slot, bool& again);
  bool hold_pages(const std::vector<std::uint64_t>& pages, std::vector<Mapping*>& held, std::vector<Run>& runs,
                  Lock& lock);
  bool swapped(const std::vector<Run>& runs);
  bool pinned(const Mapping* mapping);  // by the user, some of it
  Room make_room(Lock& lock, std::uint64_t bytes, Slot slot);
  std::vector<PointSet> pending_idle();
  void hold(Mapping* mapping);
  void let_go(std::vector<Mapping*>& mappings);
  bool in_use_by_this_thread() const;
  void wait_for_change(Lock& lock, const char* what);

  void note_moved(std::uint64_t first, std::uint64_t pages, Place place);

  // outlook.cpp
  void note_touch(const std::vector<std::uint64_t>& pages, bool now);
  Fate fate(std::uint64_t page);
  bool is_dead(Block* block);
  std::uint64_t next_use(Block* block);  // kNever, or 0 if unknown
  Outlook outlook(const Mapping* mapping);
  std::int32_t priority(const Mapping* mapping);
  bool due_before(const PointSet& points, Slot slot);
  // Mappings of at least `bytes` in all, if there are that many, whose work is over or due before the stream's next, if one
  // is given. That of others goes to `unfinished`. `ahead`: they are not to go now, and nobody's copy on the host gives way.
  std::vector<Mapping*> choose_victims(std::uint64_t bytes, std::optional<Slot> slot, std::vector<PointSet>& unfinished,
                                       bool& host_full, bool ahead = false);
  std::vector<Mapping*> next_victims(std::uint64_t bytes, std::optional<Slot> slot) {
    std::vector<PointSet> unfinished;
    bool host_full = false;
    return choose_victims(bytes, slot, unfinished, host_full, true);
  }
  template <class Visit>
  void each_live(std::uint64_t begin, std::uint64_t end, Visit visit) {
    for (Block* block = pool.at(begin); block && block->begin < end; block = block->next)
      if (block->live) visit(block);
  }

  // host.cpp
  bool host_allows(std::uint32_t tag, std::uint64_t more);
  std::uint32_t tag_at(std::uint64_t page);
  void put_swap(std::uint64_t page, std::uint64_t slot);
  [[noreturn]] void refuse_host(std::uint32_t tag, std::uint64_t bytes);

  // refill.cpp
  bool refillable(std::uint64_t page);
  Refill refill_of(std::uint64_t page);
  Refill::Part part_of(const Block* block, std::uint64_t page);
  // Parts of operands on pages that were on the device before the operands were born, all held.
  std::vector<Refill> late_refills(const std::vector<Operand>& operands);
  // False: had to wait, nothing is held any more.
  bool refill_late(Lock& lock, const std::vector<Refill>& late, std::vector<Mapping*>& held, Slot slot);
  void note_filled(const std::vector<Refill>& pages);
  void refill(Lock& lock, const std::vector<Refill>& pages);

  // swap.cpp
  // `together`: they will come back together.
  void swap_out(Lock& lock, std::vector<Mapping*> victims, bool keep, bool together = false);
  // Maps the runs and queues the copies of their contents; to be finished, whatever happens in between.
  Arrival start_arrival(Lock& lock, std::vector<Run> runs, const Skip& skip, Tier tier);
  // Work on lazy pages is made to follow the copies when there is some (begin_use); else waits for them. The new mappings come
  // back held; or nothing has changed, and it throws.
  void finish_arrival(Lock& lock, Arrival& arrival, std::vector<Mapping*>& out);
  void undo_arrival(Lock& lock, Arrival& arrival);
  void settle_arrival(const Arrival& arrival, bool arrived);
  // Held pages that are not to be overwritten after all get the contents that they were brought without.
  void fill_hollow(Lock& lock, const std::vector<std::uint64_t>& pages, const std::vector<bool>& overwritten);
  void swap_in(Lock& lock, std::vector<Run> runs, const Skip& skip, Tier tier, std::vector<Mapping*>& out, bool ahead = false);
  CUresult queue(const std::vector<Copy>& copies, CUstream stream, Call& call);
  void copy(Lock& lock, const std::vector<Copy>& copies);
  // One page's copy more; with the one before it in one where both sides lie in a row.
  void add_copy(std::vector<Copy>& copies, std::uint64_t page, std::uint64_t slot, bool in);
  // While a step of a move goes on that lets go of the lock, gate and all: pages are between two states. Made and ended
  // under the lock.
  struct Moving {
    explicit Moving(Store& store) : store_(store) { ++store.moving_; }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;
    ~Moving() {
      --store_.moving_;
      store_.changed_.notify_all();
    }
    Store& store_;
  };
  // Waits for the stream's copies, of which the last could be queued or not; what went wrong first, in `queued` and `call`.
  void finish_copies(CUstream stream, CUresult& queued, Call& call);
  void finish_copies(Lock& lock, CUstream stream, CUresult& queued, Call& call);  // without the lock
  // What has just been queued on one of the copy streams; nothing, after waiting, where that cannot be told.
  Point copies_queued(Lock& lock, Slot slot);
  // Queues copies on one of them; nothing, after waiting for those that were, where not all could be.
  Point queue_copies(Lock& lock, const std::vector<Copy>& copies, Slot slot, CUresult& result, Call& call);
  bool is_copy(const Point& point) const { return point.slot() == out_slot_ || point.slot() == in_slot_; }
  std::vector<std::uint64_t> cut(const std::vector<Handle>& handles);  // into addresses of single pinned pages
  std::map<std::uint64_t, Slab>::iterator slab_of(std::uint64_t address);
  bool in_one_slab(std::uint64_t a, std::uint64_t b);
  void put_pinned(std::uint64_t page);
  void drop_swap(std::uint64_t page);
  void collect_dropped();
  // Gives up copies of what the device has too, of mappings not busy, until `bytes` are free to be had.
  void shed_clean(std::uint64_t bytes);
  // The same, waiting for copies under way if they stand in the way.
  void make_host_room(Lock& lock, std::uint64_t bytes);
  std::uint64_t live_in_page(std::uint64_t page);

  // ahead.cpp
  // After a use, while its work runs: queues copies to the host of what gives way next, until `low_water` bytes could be had
  // without one, and copies to the device of what is used next, as far as there is room or what is used later can be dropped.
  // Waits for nothing; what fails is left to whoever needs it.
  void work_ahead(Lock& lock, Slot slot) noexcept;
  // Queues copies to the host of what is dirty on these, of those whose work is over; as far as the host has room.
  void write_behind(Lock& lock, const std::vector<Mapping*>& mappings);
  // Measures what copies of pages take, once, with the pages of something idle; gives up where that is not to be had now.
  void calibrate(Lock& lock);
  void keep_low_water(Lock& lock, Slot slot);
  void bring_ahead(Lock& lock, Slot slot);
  using Order = std::unordered_map<std::uint64_t, std::size_t>;  // of pages, by their use to come; not in it: used later
  // Room for these bytes, without a copy, a wait, or dropping a page that is used before the `position`.
  bool make_room_ahead(Lock& lock, std::uint64_t bytes, Slot slot, const Order& upcoming, std::size_t position);
  void note_upcoming(Block* block, bool ends = false);
  // Calls visit(run) for the pages of the uses to come, in their order, as told or as they recur, until it says no; a use that
  // overwrites is left out.
  template <class Visit>
  void each_upcoming(Visit visit);
  // Work queued on the slot from now on follows the copies of these pages that it has to: all that come in, and those that go
  // out of what it writes.
  void follow_copies(Lock& lock, const std::vector<std::uint64_t>& pages, const std::vector<bool>& written, Slot slot);

  // arena.cpp
  bool planned(const Block* block);

  // moves.cpp
  struct Relocation;
  void wait_for_relocations(Lock& lock);
  PageTable::Failure move(Lock& lock, std::uint64_t first_page, Tier to);
  bool restore(Lock& lock, std::uint64_t first, Handle handle);
  void set_transit(std::uint64_t first, std::uint64_t pages, bool on);
  PointSet unfinished_uses(const Mapping* mapping);
  void wait_for_uses(Lock& lock, std::uint64_t first_page);
  std::vector<Mapping*> wait_until_idle(Lock& lock, const std::vector<std::uint64_t>& firsts);
  std::vector<std::uint64_t> owned_mappings(Block* block, Tier tier, std::uint64_t& skipped);
  std::vector<Block*> tagged(std::uint32_t tag);
  std::vector<Run> unbacked(std::uint32_t tag);
  void probe_host(Lock& lock);

  std::shared_ptr<Source> release_with_pages(Block* block);
  bool is_private(std::uint32_t tag) const { return tag < private_.size() && private_[tag]; }

  CUstream stream_ = nullptr, in_stream_ = nullptr;  // memx's own: for copies, and for those to the device
  Slot out_slot_ = StreamTable::kNone, in_slot_ = StreamTable::kNone;  // of the two
  std::unique_ptr<Eviction> eviction_;
  std::unordered_map<const Block*, Extra> extras_;
  std::vector<std::shared_ptr<const Expected>> expected_;  // of the next allocations, last first
  std::uint64_t expected_from_ = 0;  // the use that is number 0 there
  std::uint64_t now_ = 0;            // uses so far
  std::uint64_t tick_ = 0;           // rankings so far
  std::set<std::pair<std::uint64_t, Block*>> upcoming_;  // blocks by the use to come next, as told; some of it may be past
  Recurrence recurrence_;
  std::vector<std::uint64_t> ahead_;  // pages brought before their use; some of them used or gone since
  Rhythm returns_;                   // of pages that had given way: how many uses after their last
  std::unordered_map<std::uint32_t, std::uint64_t> host_limits_;  // by tag
  std::unordered_map<std::uint32_t, std::uint64_t> swapped_;      // bytes, by tag
  std::map<std::uint64_t, Slab> slabs_;  // pinned handles of several pages, by address
  std::uint64_t clean_bytes_ = 0;    // of pinned pages that copy what the device has too
  struct Sample {
    std::uint64_t used_bytes, moved_before;
  };
  static constexpr std::size_t kWindow = 256;
  std::array<Sample, kWindow> samples_{};  // of the last uses, by their number
  std::vector<bool> private_;  // by tag
  bool watching_ = false;
  std::vector<Moved> moved_;
  PartCosts costs_;
  struct Dropped {
    std::uint64_t slot;
    Point copying;
  };
  std::vector<Dropped> dropped_;  // pinned pages that hold nobody's contents any more, once a copy is over
  std::condition_variable_any changed_;
  std::unordered_map<std::uint64_t, Use> uses_;
  std::uint64_t next_use_ = 1;
  std::uint64_t pinned_bytes_ = 0;  // of mappings in use
  unsigned moving_ = 0;             // steps of moves in progress, with the lock let go
  unsigned relocating_ = 0;         // explicit moves of eager pages: nobody gets memory on those pages meanwhile
};

}  // namespace memx
