// Counters: what is held now, at its peak, and gained and lost since the start.
#pragma once

#include <algorithm>
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
};

// Frameworks report requests up to this size apart from larger ones.
constexpr std::uint64_t kSmallBytes = 1 << 20;

// One quantity of small requests, of large ones and of both, counted in few steps: what was gained follows from what was
// lost and is held, and peaks are taken before a fall or when somebody asks.
class Tally {
 public:
  enum Size { kSmall, kLarge, kAll };

  void add(Size size, std::uint64_t amount) { held_[size] += amount; }
  void remove(Size size, std::uint64_t amount) {
    take_peaks(size);
    held_[size] -= amount;
    lost_[size] += amount;
  }
  std::uint64_t held() const { return held_[kSmall] + held_[kLarge]; }
  Flow flow(Size size) {
    take_peaks(kSmall);
    take_peaks(kLarge);
    const std::uint64_t held = of(held_, size), lost = of(lost_, size);
    return {{held, peak_[size]}, held + lost - of(start_, size), lost};
  }
  void remove_all() {
    for (Size size : {kSmall, kLarge}) remove(size, held_[size]);
  }
  void reset_peaks() {
    for (Size size : {kSmall, kLarge, kAll}) peak_[size] = of(held_, size);
  }
  void reset_totals() {
    for (Size size : {kSmall, kLarge}) {
      start_[size] = held_[size];
      lost_[size] = 0;
    }
  }

 private:
  static std::uint64_t of(const std::uint64_t (&both)[2], Size size) { return size == kAll ? both[kSmall] + both[kLarge] : both[size]; }
  void take_peaks(Size size) {
    peak_[size] = std::max(peak_[size], held_[size]);
    peak_[kAll] = std::max(peak_[kAll], held());
  }

  std::uint64_t held_[2]{}, lost_[2]{}, peak_[3]{};
  std::uint64_t start_[2]{};  // held when the totals were reset
};

class Demands {
 public:
  void add(std::uint64_t requested, std::uint64_t allocated) {
    const Tally::Size size = size_of(requested);
    blocks_.add(size, 1);
    requested_.add(size, requested);
    allocated_.add(size, allocated);
  }
  void remove(std::uint64_t requested, std::uint64_t allocated) {
    const Tally::Size size = size_of(requested);
    blocks_.remove(size, 1);
    requested_.remove(size, requested);
    allocated_.remove(size, allocated);
  }
  std::uint64_t requested() const { return requested_.held(); }
  std::uint64_t allocated() const { return allocated_.held(); }
  Demand of(Tally::Size size) { return {blocks_.flow(size), requested_.flow(size), allocated_.flow(size)}; }
  template <class Change>
  void each(Change change) {
    change(blocks_);
    change(requested_);
    change(allocated_);
  }

 private:
  static Tally::Size size_of(std::uint64_t requested) { return requested > kSmallBytes ? Tally::kLarge : Tally::kSmall; }
  Tally blocks_, requested_, allocated_;
};

}  // namespace memx
