// Which idle mapping gives way when the device is full.
//
// A policy places a mapping in the order of its kind whenever it is used (`rank`), and says of some at both ends of that
// order how little would be lost by each (`score`). Priorities come before either.
#pragma once

#include <cstdint>
#include <memory>

namespace memx {

enum class EvictionPolicy : std::uint8_t {
  kLru,    // used longest ago
  kClock,  // in the order of their coming, those used since the hand last passed spared once
  kCost,   // next use expected furthest away, by bytes to be moved for it
};

constexpr std::uint64_t kNever = ~0ull;

// What is known of a mapping, in uses of the resource so far.
struct Outlook {
  std::uint64_t last = 0;  // use
  std::uint64_t next = 0;  // use, as told or as the last interval lets expect; 0: unknown
  double transfers = 2;    // of its bytes, to have it away and back: out and in
};

// Intervals that come in one after the other, and whether they are much the same.
class Rhythm {
 public:
  void add(std::uint64_t interval) {
    if (!usual_) usual_ = interval;
    const std::uint64_t off = interval > usual_ ? interval - usual_ : usual_ - interval;
    deviation_ = (7 * deviation_ + off) / 8;
    usual_ = (7 * usual_ + interval + 7) / 8;
  }
  std::uint64_t usual() const { return usual_; }  // 0: none yet
  bool regular() const { return usual_ && 4 * deviation_ <= usual_; }

 private:
  std::uint64_t usual_ = 0, deviation_ = 0;  // running means
};

class Eviction {
 public:
  virtual ~Eviction() = default;
  // `now`: uses so far; `tick`: grows with every call; `before`: its rank so far, 0 for a new one.
  virtual std::uint64_t rank(const Outlook& outlook, std::uint64_t now, std::uint64_t tick, std::uint64_t before) const = 0;
  // The highest gives way first.
  virtual double score(const Outlook& outlook, std::uint64_t rank, std::uint64_t now) const = 0;
  virtual bool spares_referenced() const { return false; }
};

std::unique_ptr<Eviction> make_eviction(EvictionPolicy policy);

}  // namespace memx
