// Counters: what is held now, at its peak, and gained and lost since the start.
#pragma once

#include <cstdint>

namespace memx {

struct Gauge {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  void set(std::uint64_t value) {
    current = value;
    if (value > peak) peak = value;
  }
};

struct Flow : Gauge {
  std::uint64_t gained = 0;
  std::uint64_t lost = 0;
  void add(std::uint64_t amount) {
    gained += amount;
    set(current + amount);
  }
  void remove(std::uint64_t amount) {
    lost += amount;
    current -= amount;
  }
  void reset_peak() { peak = current; }
  void reset_totals() { gained = lost = 0; }
};

// What callers asked for and hold.
struct Demand {
  Flow blocks;     // number
  Flow requested;  // bytes, as asked
  Flow allocated;  // bytes, rounded

  void add(std::uint64_t requested_bytes, std::uint64_t allocated_bytes) {
    blocks.add(1);
    requested.add(requested_bytes);
    allocated.add(allocated_bytes);
  }
  void remove(std::uint64_t requested_bytes, std::uint64_t allocated_bytes) {
    blocks.remove(1);
    requested.remove(requested_bytes);
    allocated.remove(allocated_bytes);
  }
  template <class Change>
  void each(Change change) {
    change(blocks);
    change(requested);
    change(allocated);
  }
};

// Frameworks report requests up to this size apart from larger ones.
constexpr std::uint64_t kSmallBytes = 1 << 20;

}  // namespace memx
