// Which contents to keep between two accesses, in memory that holds several objects: intervals under a capacity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../random.h"
#include "../stop.h"
#include "accesses.h"

namespace memx::plan::migration {

// Bytes in use over time; adds to ranges and asks for their most, each in the logarithm of the length.
class Load {
 public:
  explicit Load(std::vector<Bytes> bytes);
  void add(Index from, Index to, Bytes bytes);  // [from, to)
  Bytes most(Index from, Index to) const;

 private:
  void add(Index node, Index low, Index high, Index from, Index to, Bytes bytes);
  Bytes most(Index node, Index low, Index high, Index from, Index to) const;

  Index length_;
  std::vector<Bytes> most_, added_;
};

// The accesses of some objects, in order, in memory of some capacity that holds each step's.
class Gaps {
 public:
  Gaps(const Accesses& problem, std::span<const Index> accesses, Bytes capacity);

  // From what is dropped, by access: what also fits is kept.
  void start(std::span<const std::uint8_t> dropped);
  // Keeps gaps in descending order of priority, by access, as far as they fit; starts from nothing.
  void fill(std::span<const double> priority);
  // Takes something in, drops what is in the way and fills up again, so often; until the cost is at most `goal`.
  void improve(std::int64_t rounds, Bytes goal, Random& random, Stop& stop);

  Bytes cost() const { return cost_; }
  void write(std::vector<std::uint8_t>& dropped) const;

 private:
  struct Gap {
    Index access;    // the one that reads again
    Index from, to;  // groups of accesses strictly between
    Bytes bytes;
    Index epoch;  // of the contents, where they would have to be written back; else -1
  };

  bool room(const Gap& gap) const { return load_.most(gap.from, gap.to) + gap.bytes <= capacity_; }
  void keep(std::size_t g);
  void drop(std::size_t g);
  void drop_all();
  Bytes gain(std::size_t g) const;  // of keeping a dropped one

  const Bytes capacity_;
  Load load_;
  std::vector<Gap> gaps_;
  std::vector<std::uint8_t> kept_;
  std::vector<Index> dropped_in_;  // by epoch
  Bytes cost_ = 0;
};

}  // namespace memx::plan::migration
