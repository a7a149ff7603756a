// A migration problem: which objects the operations of a program access, one after the other.
//
// Bytes move when an object's contents leave the device and are needed again. An access that only writes produces the
// whole object, so nothing needs to stay for it. All costs here are bytes beyond `base`, which no plan avoids: the
// first reads of what starts on the host and the last contents of what is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../problem.h"

namespace memx::plan::migration {

enum Mode : std::uint8_t { kReads = 1, kWrites = 2 };

struct Accesses {
  // Accesses in the order of their steps, one an object and step; sizes above zero.
  Accesses(std::span<const Bytes> size, std::span<const std::int64_t> keep, std::span<const std::int64_t> object,
           std::span<const std::int64_t> step, std::span<const std::int64_t> mode);

  Index objects() const { return static_cast<Index>(size.size()); }
  Index count() const { return static_cast<Index>(object.size()); }
  std::span<const Index> of(Index o) const {
    return {by_object.data() + begin[o], static_cast<std::size_t>(begin[o + 1] - begin[o])};
  }
  // What dropping the contents before access `next` costs: to bring them in, and to write them back if `dirty`.
  Bytes drop_bytes(Index next, bool dirty) const { return size[object[next]] << (dirty ? 1 : 0); }

  std::vector<Bytes> size;
  std::vector<Index> object, step;  // of each access
  std::vector<Index> next;          // the object's next access, or -1
  std::vector<std::uint8_t> first;  // the object's first access
  std::vector<std::uint8_t> returns;  // reads what an earlier access left
  std::vector<std::uint8_t> writes;
  std::vector<std::uint8_t> owes;    // writes contents that cost bytes to write back, and not in any case
  std::vector<std::uint8_t> wanted;  // the next access reads: the contents are needed until then
  std::vector<Index> by_object, begin;
  Index steps = 0;
  Bytes base = 0;
};

}  // namespace memx::plan::migration
