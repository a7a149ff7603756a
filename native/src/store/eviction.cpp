#include "memx/eviction.h"

#include <algorithm>

namespace memx {
namespace {

class Lru : public Eviction {
  std::uint64_t rank(const Outlook&, std::uint64_t, std::uint64_t tick, std::uint64_t) const override { return tick; }
  double score(const Outlook& outlook, std::uint64_t, std::uint64_t now) const override {
    return static_cast<double>(now - std::min(now, outlook.last));
  }
};

class Clock : public Eviction {
  std::uint64_t rank(const Outlook&, std::uint64_t, std::uint64_t tick, std::uint64_t before) const override {
    return before ? before : tick;
  }
  double score(const Outlook&, std::uint64_t rank, std::uint64_t) const override { return -static_cast<double>(rank); }
  bool spares_referenced() const override { return true; }
};

// L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5 (1966), with
// the next use where it is told and guessed from the last interval where it is not. What was expected before now and has
// not come is the less likely to come the longer it is overdue.
class Cost : public Eviction {
  std::uint64_t rank(const Outlook& outlook, std::uint64_t now, std::uint64_t, std::uint64_t) const override {
    return outlook.next ? outlook.next : now;
  }
  double score(const Outlook& outlook, std::uint64_t, std::uint64_t now) const override {
    const bool ahead = outlook.next > now;
    const double distance = outlook.next == kNever ? 1e18 : static_cast<double>(ahead ? outlook.next - now : now - std::min(now, outlook.last));
    return distance / std::max(outlook.transfers, 0.01);
  }
};

}  // namespace

std::unique_ptr<Eviction> make_eviction(EvictionPolicy policy) {
  switch (policy) {
    case EvictionPolicy::kLru: return std::make_unique<Lru>();
    case EvictionPolicy::kClock: return std::make_unique<Clock>();
    case EvictionPolicy::kCost: break;
  }
  return std::make_unique<Cost>();
}

}  // namespace memx
