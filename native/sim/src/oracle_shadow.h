// What the race oracle remembers: logical time as vector clocks over streams, and for each piece of physical
// memory the accesses that a later one could still conflict with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace memxsim {

// A stream's place in every vector clock. Operation `seq` of a slot happened before whoever has
// clock[slot] >= seq.
using Slot = uint32_t;

class Clock {
 public:
  uint64_t get(Slot slot) const { return slot < at_.size() ? at_[slot] : 0; }
  void raise(Slot slot, uint64_t seq) {
    if (slot >= at_.size()) at_.resize(slot + 1);
    if (at_[slot] < seq) at_[slot] = seq;
  }
  void join(const Clock& other) {
    if (other.at_.size() > at_.size()) at_.resize(other.at_.size());
    for (size_t i = 0; i < other.at_.size(); ++i)
      if (at_[i] < other.at_[i]) at_[i] = other.at_[i];
  }

 private:
  std::vector<uint64_t> at_;
};

// An operation's time: what it knew, and itself.
struct Stamp {
  std::shared_ptr<const Clock> known;
  Slot slot = 0;
  uint64_t seq = 0;
};

struct Operation {
  Slot slot = 0;
  uint64_t seq = 0;
  uint64_t stream_id = 0;
  uint64_t index = 0;  // within its stream, from 1
  const char* name = "";
  int device = 0;
};

// Atomic updates conflict with plain reads and writes, not with each other.
enum class AccessKind : uint8_t { read, write, atomic };

struct AccessRecord {
  Operation by;
  AccessKind kind = AccessKind::read;
  uint64_t address = 0, bytes = 0;  // the operand, as the program gave it
};

// The latest access by each stream.
using UseList = std::vector<AccessRecord>;

// Byte ranges of one piece of physical memory, each with its last write and the reads since.
class Shadow {
 public:
  // `conflict(const AccessRecord& before)` is called for every earlier access that conflicts by kind, ordered or not.
  template <typename Conflict>
  void access(uint64_t low, uint64_t high, const AccessRecord& record, Conflict&& conflict) {
    auto first = cells_.upper_bound(low);
    if (first != cells_.begin() && std::prev(first)->second.end > low) --first;
    if (first != cells_.end() && first->first == low && first->second.end == high) {
      update(first->second, record, conflict);
      return;
    }
    split(first, low, high);
    if (record.kind == AccessKind::write)
      write_range(low, high, record, conflict);
    else
      share_range(low, high, record, conflict);
  }

  // Forgets accesses that `settled(const AccessRecord&)` says nothing can conflict with any more.
  template <typename Settled>
  void prune(Settled&& settled) {
    for (auto at = cells_.begin(); at != cells_.end();) {
      Cell& cell = at->second;
      std::erase_if(cell.reads, settled);
      if (cell.written && settled(cell.write)) cell.written = false;
      at = !cell.written && cell.reads.empty() ? cells_.erase(at) : std::next(at);
    }
    prune_at_ = cells_.size() * 2 < kPruneCells ? kPruneCells : cells_.size() * 2;
  }
  bool wants_pruning() const { return cells_.size() > prune_at_; }

  // The last write over any of [low, high), for callers that must know whether contents are settled.
  template <typename Visit>
  void writes(uint64_t low, uint64_t high, Visit&& visit) const {
    auto at = cells_.upper_bound(low);
    if (at != cells_.begin()) --at;
    for (; at != cells_.end() && at->first < high; ++at)
      if (at->second.end > low && at->second.written) visit(at->second.write);
  }

 private:
  static constexpr size_t kPruneCells = 256;
  struct Cell {
    uint64_t end = 0;
    bool written = false;
    AccessRecord write;
    std::vector<AccessRecord> reads;  // and atomic updates, since the write
  };
  using Cells = std::map<uint64_t, Cell>;

  void split_at(Cells::iterator cell, uint64_t at) {
    Cell right = cell->second;
    cell->second.end = at;
    cells_.emplace_hint(std::next(cell), at, std::move(right));
  }

  void split(Cells::iterator first, uint64_t low, uint64_t high) {
    if (first != cells_.end() && first->first < low && first->second.end > low) split_at(first, low);
    auto last = cells_.lower_bound(high);
    if (last == cells_.begin()) return;
    --last;
    if (last->first < high && last->second.end > high) split_at(last, high);
  }

  template <typename Conflict>
  void write_range(uint64_t low, uint64_t high, const AccessRecord& record, Conflict&& conflict) {
    auto at = cells_.lower_bound(low);
    while (at != cells_.end() && at->first < high) {
      check(at->second, AccessKind::write, conflict);
      at = cells_.erase(at);
    }
    Cell cell;
    cell.end = high;
    cell.written = true;
    cell.write = record;
    cells_.emplace_hint(at, low, std::move(cell));
  }

  template <typename Conflict>
  void share_range(uint64_t low, uint64_t high, const AccessRecord& record, Conflict&& conflict) {
    uint64_t next = low;
    auto at = cells_.lower_bound(low);
    while (next < high) {
      if (at == cells_.end() || at->first > next) {
        const uint64_t stop = at == cells_.end() || at->first > high ? high : at->first;
        Cell gap;
        gap.end = stop;
        gap.reads.push_back(record);
        at = std::next(cells_.emplace_hint(at, next, std::move(gap)));
        next = stop;
        continue;
      }
      update(at->second, record, conflict);
      next = at->second.end;
      at = merged_with_previous(at, low);
    }
  }

  // Neighbours that say the same are one cell.
  Cells::iterator merged_with_previous(Cells::iterator at, uint64_t low) {
    if (at->first > low) {
      auto before = std::prev(at);
      if (before->second.end == at->first && same(before->second, at->second)) {
        before->second.end = at->second.end;
        return cells_.erase(at);
      }
    }
    return std::next(at);
  }

  static bool same(const AccessRecord& a, const AccessRecord& b) {
    return a.by.slot == b.by.slot && a.by.seq == b.by.seq && a.kind == b.kind && a.address == b.address;
  }
  static bool same(const Cell& a, const Cell& b) {
    if (a.written != b.written || a.reads.size() != 1 || b.reads.size() != 1) return false;
    return same(a.reads[0], b.reads[0]) && (!a.written || same(a.write, b.write));
  }

  template <typename Conflict>
  static void check(Cell& cell, AccessKind kind, Conflict&& conflict) {
    if (cell.written) conflict(cell.write);
    for (const AccessRecord& other : cell.reads)
      if (kind == AccessKind::write || other.kind != kind) conflict(other);
  }

  template <typename Conflict>
  static void update(Cell& cell, const AccessRecord& record, Conflict&& conflict) {
    check(cell, record.kind, conflict);
    if (record.kind == AccessKind::write) {
      cell.reads.clear();
      cell.written = true;
      cell.write = record;
      return;
    }
    for (AccessRecord& other : cell.reads)
      if (other.by.slot == record.by.slot && other.kind == record.kind) {
        other = record;
        return;
      }
    cell.reads.push_back(record);
  }

  Cells cells_;
  size_t prune_at_ = kPruneCells;
};

}  // namespace memxsim
