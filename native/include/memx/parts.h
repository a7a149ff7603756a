// The parts in which many pages are exchanged for others, from what copying, unmapping and mapping them was found to take.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "memx/chunks.h"

namespace memx {

class PartCosts {
 public:
  using Clock = std::chrono::steady_clock;

  bool measured() const { return measured_; }
  // So long one copy of a page took, and `pages` of them, one behind the other, each time waited for at the end.
  void measure(Clock::duration one, Clock::duration many, std::uint64_t pages) {
    measured_ = true;
    page_us_ = std::max((us(many) - us(one)) / static_cast<double>(pages - 1), kLeastUs);
    fixed_us_ = std::max(us(one) - page_us_, kLeastUs);
  }
  // So long it took to unmap, or to back and map, pages.
  void add_unmapping(std::uint64_t pages, Clock::duration took) { unmapping_.add(pages, us(took)); }
  void add_mapping(std::uint64_t pages, Clock::duration took) { mapping_.add(pages, us(took)); }

  // Pages: what is the same for each part is an eighth of it then.
  std::uint64_t shortest() const {
    return static_cast<std::uint64_t>(std::clamp(8 * fixed_us_ / page_us_, double{kLeastPages}, double{kMostPages}));
  }
  // First a part is copied out; then its pages are unmapped, others mapped, and those are copied in.
  std::vector<std::uint64_t> parts(std::uint64_t pages) const {
    const double calls_us = measured_ ? unmapping_.each() + mapping_.each() : 0;
    auto out = [&](std::uint64_t n) { return fixed_us_ + page_us_ * static_cast<double>(n); };
    auto in = [&](std::uint64_t n) { return out(n) + calls_us * static_cast<double>(n); };
    return balanced_chunks(pages, out, in, shortest(), 1, pages / kLeastPages);
  }

 private:
  static constexpr std::uint64_t kLeastPages = 4, kMostPages = 64;
  static constexpr double kLeastUs = 1e-3;
  static double us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }
  struct Rate {
    double us = 0;
    std::uint64_t pages = 0;
    void add(std::uint64_t more, double took) {
      pages += more;
      us += took;
    }
    double each() const { return pages ? us / static_cast<double>(pages) : 0; }
  };

  bool measured_ = false;
  double fixed_us_ = 2, page_us_ = 1;  // until measured, only their ratio matters
  Rate unmapping_, mapping_;
};

}  // namespace memx
