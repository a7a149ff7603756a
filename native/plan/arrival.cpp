// Best fit in order of arrival: only the gaps of the current moment matter, so the lifetimes' overlap
// costs nothing.
#include <algorithm>
#include <array>
#include <bit>

#include "greedy.h"

namespace memx::plan {

namespace {

// Memory as a chain of blocks in order of address, the free ones also listed by size: a bin for each power of
// two's 32nd part. What a bin's first few blocks offer is compared, so the fit is close to the best.
class Arena {
 public:
  explicit Arena(std::size_t count) { blocks_.reserve(count + 1); }

  // Returns the block taken; `offset` of it is aligned.
  Index take(Bytes size, Bytes alignment, Bytes& offset) {
    const Index found = find(size, alignment);
    if (found < 0) {
      offset = align_up(top_, alignment);
      if (offset > top_) list(append(offset - top_));
      return append(size);
    }
    unlist(found);
    offset = align_up(blocks_[found].begin, alignment);
    const Bytes before = offset - blocks_[found].begin;
    const Bytes after = blocks_[found].length - before - size;
    if (before > 0) list(split_front(found, before));
    if (after > 0) {
      const Index rest = insert_after(found, offset + size, after);
      blocks_[found].length = size;
      list(rest);
    }
    return found;
  }

  void give(Index block) {
    const Index before = blocks_[block].before, after = blocks_[block].after;
    if (before >= 0 && blocks_[before].bin >= 0) {
      unlist(before);
      blocks_[block].begin = blocks_[before].begin;
      blocks_[block].length += blocks_[before].length;
      unchain(before);
    }
    if (after >= 0 && blocks_[after].bin >= 0) {
      unlist(after);
      blocks_[block].length += blocks_[after].length;
      unchain(after);
    }
    if (block == last_) {
      top_ = blocks_[block].begin;
      unchain(block);
    } else {
      list(block);
    }
  }

 private:
  static constexpr int kParts = 32, kPartBits = 5, kLooks = 16;
  static constexpr Index kNone = -1;

  struct Block {
    Bytes begin, length;
    Index before = kNone, after = kNone;  // in order of address
    Index bin = kNone;                    // free if listed
    Index previous = kNone, next = kNone;  // in its bin
  };

  static Index bin_of(Bytes size) {
    const auto s = static_cast<std::uint64_t>(size);
    if (s < kParts) return static_cast<Index>(s);
    const int power = std::bit_width(s) - 1;
    return (power - kPartBits + 1) * kParts + static_cast<Index>((s >> (power - kPartBits)) & (kParts - 1));
  }

  Index find(Bytes size, Bytes alignment) const {
    for (Index bin = bin_of(size); (bin = next_bin(bin)) >= 0; ++bin) {
      Index best = kNone;
      int looks = kLooks;
      for (Index b = heads_[bin]; b >= 0 && looks > 0; b = blocks_[b].next, --looks) {
        const bool holds = align_up(blocks_[b].begin, alignment) + size <= blocks_[b].begin + blocks_[b].length;
        if (holds && (best < 0 || blocks_[b].length < blocks_[best].length)) best = b;
      }
      if (best >= 0) return best;
    }
    return kNone;
  }

  Index next_bin(Index from) const {
    for (std::size_t word = static_cast<std::size_t>(from) / 64; word < used_.size(); ++word) {
      const std::uint64_t bits = word == static_cast<std::size_t>(from) / 64 ? used_[word] >> (from % 64) << (from % 64) : used_[word];
      if (bits != 0) return static_cast<Index>(word * 64) + std::countr_zero(bits);
    }
    return kNone;
  }

  void list(Index b) {
    const Index bin = bin_of(blocks_[b].length);
    blocks_[b].bin = bin;
    blocks_[b].previous = kNone;
    blocks_[b].next = heads_[bin];
    if (heads_[bin] >= 0) blocks_[heads_[bin]].previous = b;
    heads_[bin] = b;
    used_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  }

  void unlist(Index b) {
    Block& block = blocks_[b];
    if (block.next >= 0) blocks_[block.next].previous = block.previous;
    if (block.previous >= 0) {
      blocks_[block.previous].next = block.next;
    } else {
      heads_[block.bin] = block.next;
      if (block.next < 0) used_[block.bin / 64] &= ~(std::uint64_t{1} << (block.bin % 64));
    }
    block.bin = kNone;
  }

  Index fresh(Bytes begin, Bytes length) {
    if (!spare_.empty()) {
      const Index b = spare_.back();
      spare_.pop_back();
      blocks_[b] = {begin, length};
      return b;
    }
    blocks_.push_back({begin, length});
    return static_cast<Index>(blocks_.size() - 1);
  }

  Index append(Bytes length) {
    const Index b = fresh(top_, length);
    top_ += length;
    blocks_[b].before = last_;
    if (last_ >= 0) blocks_[last_].after = b;
    return last_ = b;
  }

  Index insert_after(Index b, Bytes begin, Bytes length) {
    const Index added = fresh(begin, length);
    const Index after = blocks_[b].after;
    blocks_[added].before = b;
    blocks_[added].after = after;
    blocks_[b].after = added;
    (after >= 0 ? blocks_[after].before : last_) = added;
    return added;
  }

  // Cuts `length` off the front of a block, as a block of its own.
  Index split_front(Index b, Bytes length) {
    const Index added = fresh(blocks_[b].begin, length);
    const Index before = blocks_[b].before;
    blocks_[added].before = before;
    blocks_[added].after = b;
    if (before >= 0) blocks_[before].after = added;
    blocks_[b].before = added;
    blocks_[b].begin += length;
    blocks_[b].length -= length;
    return added;
  }

  void unchain(Index b) {
    const Index before = blocks_[b].before, after = blocks_[b].after;
    if (before >= 0) blocks_[before].after = after;
    (after >= 0 ? blocks_[after].before : last_) = before;
    spare_.push_back(b);
  }

  static constexpr std::size_t kBins = 64 * kParts;
  std::vector<Block> blocks_;
  std::vector<Index> spare_;
  std::vector<Index> heads_ = std::vector<Index>(kBins, kNone);
  std::array<std::uint64_t, kBins / 64> used_{};
  Index last_ = kNone;
  Bytes top_ = 0;
};

}  // namespace

Offsets place_by_arrival(const Problem& problem, const Stop& stop) {
  const std::size_t n = problem.count();
  std::vector<Index> by_end(problem.by_start);
  std::stable_sort(by_end.begin(), by_end.end(), [&](Index a, Index b) { return problem.last[a] < problem.last[b]; });

  Offsets result{std::vector<Bytes>(n, 0), 0, {}};
  std::vector<Index> block(n);
  Arena arena(n);
  std::size_t dead = 0;
  for (std::size_t r = 0; r < n && !stop.cancelled();) {
    const Index section = problem.first[problem.by_start[r]];
    for (; dead < n && problem.last[by_end[dead]] < section; ++dead) arena.give(block[by_end[dead]]);
    // Those born in one section are all alive in it: the largest first.
    std::vector<Index> born;
    for (; r < n && problem.first[problem.by_start[r]] == section; ++r) born.push_back(problem.by_start[r]);
    std::stable_sort(born.begin(), born.end(), [&](Index a, Index b) { return problem.size[a] > problem.size[b]; });
    for (const Index b : born) {
      block[b] = arena.take(problem.size[b], problem.alignment[b], result.at[b]);
      result.height = std::max(result.height, result.at[b] + problem.size[b]);
    }
  }
  return result;
}

}  // namespace memx::plan
