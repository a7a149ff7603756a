// Blocks: what callers hold and what is free between them, cut from ranges of the reservation in units of 512
// bytes, split and coalesced.
//
// A free block carries the points its next owner must be ordered after. Free blocks are listed by key (tag and
// place, so that different tags and tiers never share a page) and, within a key, by whose points they carry: none,
// one stream's, or several streams'. The stream's own list and the one without points need no check, so a hit
// looks at no event. A block with points also waits in line for one of them: when more of a stream is over, only
// the blocks that waited for that are looked at.
//
// Invariants: blocks tile every range exactly; no two neighbours that could be one are both free with the same
// key and list; the index finds the block of any byte in O(1).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memx/block.h"
#include "memx/order.h"
#include "memx/tlsf.h"

namespace memx {

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
  // Ends a live block; its points are what its pages still wait for. Returns the free block it became part of.
  Block* release(Block* live);
  // Fetches what release will look at.
  static void foresee(const Block* live) {
    __builtin_prefetch(live->prev);
    __builtin_prefetch(live->next);
  }
  // The same for a block whose pages are in several places: `pieces` tile it.
  struct Piece {
    std::uint64_t end;
    Place place;
  };
  void release_pieces(Block* live, const std::vector<Piece>& pieces);

  // A range becomes a free block, held: merged with a neighbour it would have to wait for that one's points.
  Block* add_range(std::uint64_t begin, std::uint64_t bytes, KeyId key);
  // A range that was taken out is free again, and waits for nothing.
  void put_back(std::uint64_t begin, std::uint64_t bytes, KeyId key);
  // The free block at the end of the range that the key grew last, if the stream may have it.
  Block* tail(KeyId key, Slot slot, Slot graph = StreamTable::kNone);
  std::uint64_t top(KeyId key) const;  // where that range ends; 0 if there is none
  void hold(Block* free);
  void unhold(Block* held);
  void extend(Block* held_tail, std::uint64_t bytes);
  // [begin, end), all of it free and of one key, becomes one block, held, that waits for all of their points.
  Block* hold_range(std::uint64_t begin, std::uint64_t end);
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

  Block* starting_at(std::uint64_t offset) const { return index_.starting_at(offset); }
  Block* at(std::uint64_t offset) const { return index_.at(offset); }  // the block that covers it
  std::uint64_t live_bytes_in(std::uint64_t begin, std::uint64_t end);
  // Forgets points that are over by now and coalesces what that allows. After a successful poll.
  void tidy();
  template <class Visit>
  void for_each(Visit visit) {
    for (const HugeMemory& chunk : slab_)
      for (Block* block = chunk.as<Block>(); block < end_of(chunk); ++block)
        if (block->bytes) visit(*block);
  }

  std::uint64_t pending_bytes() const { return pending_bytes_; }  // free, with points on several streams
  std::uint64_t probes = 0;                                       // blocks that searches looked at
  bool check(std::string* why);

 private:
  static constexpr std::uint32_t kClean = 0, kMixed = 1, kFirstStream = 2;
  static constexpr std::size_t kFirstChunk = 64 << 10, kChunk = 2 << 20;  // bytes
  struct Lists {
    std::vector<std::unique_ptr<SizeClasses>> by_points;
    std::vector<std::uint64_t> used;  // one bit for each that is not empty
    std::uint64_t top = 0;
  };
  // Blocks whose first point is one stream's, by its number: nearly in order, the smallest at the front.
  struct Line {
    Block* front = nullptr;
    Block* back = nullptr;
  };
  Block* end_of(const HugeMemory& chunk) const {
    return &chunk == &slab_.back() ? fresh_ : chunk.as<Block>() + chunk.bytes() / sizeof(Block);
  }
  Block* fresh_node();
  Block* node(std::uint64_t begin, std::uint64_t bytes);
  Block* make(std::uint64_t begin, std::uint64_t bytes);  // and puts it into the index
  void recycle(Block* block);
  void drop(Block* block);
  void link_neighbours(Block* block);
  std::uint32_t list_of(const PointSet& points) const;
  SizeClasses& bin(KeyId key, std::uint32_t list) {
    if (key < lists_.size() && list < lists_[key].by_points.size())
      if (SizeClasses* made = lists_[key].by_points[list].get()) return *made;
    return make_bin(key, list);
  }
  SizeClasses& make_bin(KeyId key, std::uint32_t list);
  void enlist(Block* block);
  void delist(Block* block);
  void put(Block* block);  // into its bin
  void pull(Block* block);
  void join_line(Block* block);
  void leave_line(Block* block);
  Block* coalesce(Block* block);  // enlists it
  void absorb_next(Block* block);
  // The first bytes of a free block as a live one; what is left keeps its node, its place in line and, if listed, its list.
  Block* take_front(Block* block, std::uint64_t bytes);
  Block* split(Block* block, std::uint64_t at);  // returns the upper part, neither enlisted
  // Cuts what lies in [begin, end) out of a free block and its list; what is left over stays listed.
  Block* isolate(Block* block, std::uint64_t begin, std::uint64_t end);
  Lists& lists(KeyId key);
  bool check_lines(std::string* why);

  bool fits(const Block* block, std::uint64_t bytes, std::uint64_t align) const;
  std::uint64_t aligned_start(const Block* block, std::uint64_t align) const;

  StreamTable& order_;
  std::uint64_t base_;
  std::vector<HugeMemory> slab_;  // blocks, each made when it is first needed
  Block* fresh_ = nullptr;        // the next to be made, in the last chunk
  Block* unused_ = nullptr;  // by list_next
  std::vector<Lists> lists_;
  std::vector<Line> lines_;  // by slot
  std::vector<Slot> news_;
  BlockIndex index_;
  std::uint64_t pending_bytes_ = 0;
};

}  // namespace memx
