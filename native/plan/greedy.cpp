#include "greedy.h"

#include <algorithm>
#include <limits>

#include "interval_index.h"

namespace memx::plan {

namespace {

struct Span {
  Bytes begin, end;
};

// Walks spans in order of their begin and keeps the best gap for one buffer.
class GapFinder {
 public:
  GapFinder(Bytes size, Bytes alignment, Fit fit) : size_(size), alignment_(alignment), fit_(fit) {}

  // False once nothing better can follow.
  bool step(Bytes begin, Bytes end) {
    if (begin > top_) {
      const Bytes offset = align_up(top_, alignment_);
      if (offset + size_ <= begin) {
        const Bytes left = begin - top_ - size_;
        if (left < tightest_) {
          tightest_ = left;
          offset_ = offset;
        }
        if (fit_ == Fit::kFirst || left == 0) return false;
      }
    }
    top_ = std::max(top_, end);
    return true;
  }

  Bytes offset() const { return offset_ != kFree ? offset_ : align_up(top_, alignment_); }

 private:
  Bytes size_, alignment_;
  Fit fit_;
  Bytes top_ = 0;
  Bytes offset_ = kFree;
  Bytes tightest_ = std::numeric_limits<Bytes>::max();
};

// All placed buffers in order of offset, each passed over unless alive with the asker. Best where most are.
class OffsetList {
 public:
  explicit OffsetList(const Problem& problem) : problem_(problem) { placed_.reserve(problem.count()); }

  Bytes find(Index b, Fit fit) {
    GapFinder gap(problem_.size[b], problem_.alignment[b], fit);
    const Index first = problem_.first[b], last = problem_.last[b];
    for (const Placed& p : placed_) {
      if (p.first <= last && first <= p.last && !gap.step(p.begin, p.end)) break;
    }
    return gap.offset();
  }

  void insert(Index b, Bytes offset) {
    const Placed p{offset, offset + problem_.size[b], problem_.first[b], problem_.last[b]};
    const auto where = std::upper_bound(placed_.begin(), placed_.end(), p,
                                        [](const Placed& x, const Placed& y) { return x.begin < y.begin; });
    placed_.insert(where, p);
  }

 private:
  struct Placed {
    Bytes begin, end;
    Index first, last;
  };
  const Problem& problem_;
  std::vector<Placed> placed_;
};

// Only the buffers alive with the asker, sorted by offset each time. Best where they are few.
class Neighbours {
 public:
  explicit Neighbours(const Problem& problem) : problem_(problem), index_(problem), at_(problem.count()) {}

  Bytes find(Index b, Fit fit) {
    spans_.clear();
    index_.each_alive_with(b, [&](Index o) { spans_.push_back({at_[o], at_[o] + problem_.size[o]}); });
    std::sort(spans_.begin(), spans_.end(), [](const Span& x, const Span& y) { return x.begin < y.begin; });
    GapFinder gap(problem_.size[b], problem_.alignment[b], fit);
    for (const Span& s : spans_) {
      if (!gap.step(s.begin, s.end)) break;
    }
    return gap.offset();
  }

  void insert(Index b, Bytes offset) {
    at_[b] = offset;
    index_.insert(b);
  }

 private:
  const Problem& problem_;
  IntervalIndex index_;
  std::vector<Bytes> at_;
  std::vector<Span> spans_;
};

template <class Placed>
std::optional<Offsets> place(const Problem& problem, const std::vector<Index>& order, Fit fit, Stop& stop) {
  Offsets result{std::vector<Bytes>(problem.count(), 0), 0, {}};
  Placed placed(problem);
  const auto put = [&](Index b, Bytes offset) {
    result.at[b] = offset;
    result.height = std::max(result.height, offset + problem.size[b]);
    placed.insert(b, offset);
  };
  if (problem.any_fixed) {
    for (const Index b : order) {
      if (problem.fixed[b] != kFree) put(b, problem.fixed[b]);
    }
  }
  for (const Index b : order) {
    if (problem.fixed[b] != kFree) continue;
    if (stop()) return std::nullopt;
    put(b, placed.find(b, fit));
  }
  return result;
}

const char* name(Order order) {
  switch (order) {
    case Order::kSize: return "size";
    case Order::kArea: return "area";
    case Order::kLength: return "length";
    case Order::kStart: return "start";
  }
  return "";
}

}  // namespace

std::vector<Index> ordered(const Problem& problem, Order order) {
  const auto length = [&](Index b) { return problem.last[b] - problem.first[b] + 1; };
  const auto key = [&](Index b) -> double {
    switch (order) {
      case Order::kSize: return static_cast<double>(problem.size[b]);
      case Order::kArea: return static_cast<double>(problem.size[b]) * length(b);
      case Order::kLength: return length(b);
      case Order::kStart: return 0;
    }
    return 0;
  };
  struct Ranked {
    double key;
    Index length, buffer;
  };
  std::vector<Ranked> ranked;
  ranked.reserve(problem.count());
  for (const Index b : problem.by_start) ranked.push_back({key(b), length(b), b});
  std::stable_sort(ranked.begin(), ranked.end(), [&](const Ranked& x, const Ranked& y) {
    if (x.key != y.key) return x.key > y.key;
    if (order == Order::kStart) return false;
    if (x.length != y.length) return x.length > y.length;
    return problem.size[x.buffer] > problem.size[y.buffer];
  });
  std::vector<Index> result;
  result.reserve(ranked.size());
  for (const Ranked& r : ranked) result.push_back(r.buffer);
  return result;
}

std::optional<Offsets> place_in_order(const Problem& problem, const std::vector<Index>& order, Fit fit,
                                      Stop& stop) {
  const auto n = static_cast<std::int64_t>(problem.count());
  const bool dense = n <= 64 || problem.pairs / n > n / 24;
  return dense ? place<OffsetList>(problem, order, fit, stop) : place<Neighbours>(problem, order, fit, stop);
}

Offsets greedy(const Problem& problem, Bytes capacity, Stop& stop) {
  Offsets best;
  const auto good_enough = [&] {
    return best.height <= problem.bound || (capacity >= 0 && best.height <= capacity);
  };
  const auto offer = [&](Offsets&& candidate, std::string how) {
    if (best.how.empty() || candidate.height < best.height) {
      best = std::move(candidate);
      best.how = std::move(how);
    }
  };
  if (problem.any_fixed) {
    Stop never(1e8, stop.cancelled_flag());
    auto placed = place_in_order(problem, ordered(problem, Order::kSize), Fit::kFirst, never);
    if (!placed) return best;
    offer(std::move(*placed), "greedy size first-fit");
  } else {
    offer(place_by_arrival(problem, stop), "greedy start best-fit");
  }
  for (const Order order : {Order::kSize, Order::kArea, Order::kLength, Order::kStart}) {
    const std::vector<Index> sequence = ordered(problem, order);
    for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
      if (good_enough() || stop.now()) return best;
      auto placed = place_in_order(problem, sequence, fit, stop);
      if (!placed) return best;
      offer(std::move(*placed),
            std::string("greedy ") + name(order) + (fit == Fit::kFirst ? " first-fit" : " best-fit"));
    }
  }
  return best;
}

}  // namespace memx::plan
