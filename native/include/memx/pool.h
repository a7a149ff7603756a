// Blocks: what callers hold and what is free between them, cut from ranges of the reservation in units of 512
// bytes, split and coalesced.
//
// A free block carries the points its next owner must be ordered after. Free blocks are listed by key (tag and
// place, so that different tags and tiers never share a page) and, within a key, by whose points they carry: none,
// one stream's, or several streams'. The stream's own list and the one without points need no check, so a hit
// looks at no event.
//
// Invariants: blocks tile every range exactly; no two neighbours that could be one are both free with the same
// key and list; the index finds the block of any byte in O(1).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "memx/order.h"
#include "memx/sparse.h"
#include "memx/tlsf.h"

namespace memx {

constexpr std::uint64_t kGranularity = 512;

// What a block's pages are, as far as reuse goes. A lazy resource has only kLazy: there the pages come later.
enum class Place : std::uint8_t { kDevice, kHost, kUnbacked, kLazy };

using KeyId = std::uint32_t;
inline KeyId key_of(std::uint32_t tag, Place place) { return tag * 4 + static_cast<KeyId>(place); }
inline Place place_of(KeyId key) { return static_cast<Place>(key % 4); }
inline std::uint32_t tag_of(KeyId key) { return key / 4; }

struct Block {
  std::uint64_t begin = 0;  // bytes from the start of the reservation
  std::uint64_t bytes = 0;
  Block* prev = nullptr;  // neighbours by address, null at the edge of a range
  Block* next = nullptr;
  KeyId key = 0;
  bool live = false;
  PointSet points;  // free: what the next owner must come after; live: what it inherited unresolved

  // of live blocks
  std::uint64_t requested = 0;
  Slot slot = 0;  // allocation stream
  bool moved = false;  // some of its pages changed tier since
  bool lost = false;   // a failed move destroyed some of its contents
  std::uint32_t pins = 0;
  std::vector<Slot> used_on;  // other streams, until its free

  // of free blocks
  std::uint32_t list = 0;
  bool held = false;  // taken out of its list by a request in progress
  Block* list_prev = nullptr;
  Block* list_next = nullptr;

  std::uint64_t end() const { return begin + bytes; }
};

class Pool {
 public:
  // `base`: the address of offset 0, for alignment.
  Pool(StreamTable& order, std::uint64_t base, std::uint64_t reservation_bytes);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  enum class Scan {
    kReady,    // the stream's own and those without points
    kOrdered,  // also those that the order says are over or ordered before the stream
    kAny,      // whatever fits, ordered or not
  };
  // `graph`: see StreamTable::usable.
  Block* find(KeyId key, std::uint64_t bytes, std::uint64_t align, Slot slot, Scan scan, Slot graph = StreamTable::kNone);
  // Cuts a live block out of a free one. `bytes` is a multiple of the granularity.
  Block* take(Block* free, std::uint64_t bytes, std::uint64_t align, Slot slot, std::uint64_t requested);
  // Ends a live block; `points` are what its pages still wait for. Returns the free block it became part of.
  Block* release(Block* live, PointSet points);
  // The same for a block whose pages are in several places: `pieces` tile it.
  struct Piece {
    std::uint64_t end;
    Place place;
  };
  void release_pieces(Block* live, PointSet points, const std::vector<Piece>& pieces);

  // A range becomes a free block, held: merged with a neighbour it would have to wait for that one's points.
  Block* add_range(std::uint64_t begin, std::uint64_t bytes, KeyId key);
  // The free block at the end of the range that the key grew last, if the stream may have it.
  Block* tail(KeyId key, Slot slot, Slot graph = StreamTable::kNone);
  std::uint64_t top(KeyId key) const;  // where that range ends; 0 if there is none
  void hold(Block* free);
  void unhold(Block* free);
  void extend(Block* held_tail, std::uint64_t bytes);
  // The points that all of [begin, end) waits for; false if something there is live or held.
  bool free_points(std::uint64_t begin, std::uint64_t end, PointSet& out);
  // The points that the free parts of it wait for.
  PointSet pending_points(std::uint64_t begin, std::uint64_t end);
  // Takes [begin, end), all free, out of the pool.
  void remove_range(std::uint64_t begin, std::uint64_t end);
  // The pages of [begin, end) changed place: free blocks there follow, live ones are marked moved.
  void change_place(std::uint64_t begin, std::uint64_t end, Place place);

  // All of a tag becomes tag 0's, and waits for `over` instead of graphs.
  void retire(std::uint32_t tag, Point over);

  Block* starting_at(std::uint64_t offset);
  Block* at(std::uint64_t offset);  // the block that covers it
  std::uint64_t live_bytes_in(std::uint64_t begin, std::uint64_t end);
  // Forgets completed points and coalesces what that allows. After a successful poll.
  void tidy();
  template <class Visit>
  void for_each(Visit visit) {
    for (Block& block : slab_)
      if (block.bytes) visit(block);
  }

  std::uint64_t pending_bytes() const { return pending_bytes_; }  // free, with points on several streams
  std::uint64_t largest_free(KeyId key);
  bool check(std::string* why);

 private:
  static constexpr std::uint32_t kClean = 0, kMixed = 1, kFirstStream = 2;
  struct Lists {
    std::vector<std::unique_ptr<SizeClasses>> by_points;
    std::uint64_t top = 0;
  };
  Block* make(std::uint64_t begin, std::uint64_t bytes);
  void drop(Block* block);
  void index(Block* block);
  void unindex(std::uint64_t begin);
  void link_neighbours(Block* block);
  std::uint32_t list_of(const PointSet& points) const;
  void enlist(Block* block);
  void delist(Block* block);
  Block* coalesce(Block* block);  // enlists it
  Block* absorb_next(Block* block);
  Block* split(Block* block, std::uint64_t at);  // returns the upper part, neither enlisted
  // Cuts what lies in [begin, end) out of a free block and its list; what is left over stays listed.
  Block* isolate(Block* block, std::uint64_t begin, std::uint64_t end);
  Lists& lists(KeyId key);

  bool fits(const Block* block, std::uint64_t bytes, std::uint64_t align) const;
  std::uint64_t aligned_start(const Block* block, std::uint64_t align) const;

  StreamTable& order_;
  std::uint64_t base_;
  std::deque<Block> slab_;
  std::vector<Block*> unused_;
  std::vector<Lists> lists_;
  SparseArray<Block*> starts_;  // by granule: the block that begins there
  static constexpr int kLevels = 6;
  std::unique_ptr<SparseArray<std::uint64_t>> bits_[kLevels];  // level 0: one bit a granule that a block begins at
  std::uint64_t granules_;
  std::uint64_t pending_bytes_ = 0;
};

}  // namespace memx
