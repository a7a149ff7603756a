// Whether uses of pages go round: each the same as the one so many uses before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memx/runs.h"

namespace memx {

class Recurrence {
 public:
  void add(std::vector<Run> use) {
    const std::uint64_t number = gone_ + uses_.size(), hash = hash_of(use);
    if (lag_ && lag_ <= uses_.size() && uses_[uses_.size() - lag_] == use) {
      ++repeated_;
    } else {
      const auto before = last_.find(hash);
      lag_ = before == last_.end() ? 0 : number - before->second;
      repeated_ = lag_ ? 1 : 0;
    }
    last_[hash] = number;
    uses_.push_back(std::move(use));
    if (uses_.size() <= kMost) return;
    if (const auto oldest = last_.find(hash_of(uses_.front())); oldest->second == gone_) last_.erase(oldest);
    uses_.pop_front();
    ++gone_;
  }
  // The use that comes `ahead` after the last one (1: the next), if things go on as they did; null: they do not go round.
  const std::vector<Run>* expected(std::uint64_t ahead) const {
    if (!lag_ || lag_ > uses_.size() || repeated_ < std::min(lag_, kProof)) return nullptr;
    return &uses_[uses_.size() - lag_ + (ahead - 1) % lag_];
  }

 private:
  static constexpr std::size_t kMost = 1 << 15;
  static constexpr std::uint64_t kProof = 8;  // uses in a row that came as expected

  static std::uint64_t hash_of(const std::vector<Run>& use) {
    std::uint64_t hash = use.size();
    for (const Run& run : use)
      for (std::uint64_t value : {run.first, run.pages}) hash = (hash ^ value) * 0x9E3779B97F4A7C15ull ^ hash >> 29;
    return hash;
  }

  std::deque<std::vector<Run>> uses_;
  std::uint64_t gone_ = 0;  // before those
  std::unordered_map<std::uint64_t, std::uint64_t> last_;  // number of the last use with that hash
  std::uint64_t lag_ = 0, repeated_ = 0;  // how long ago the same was used; how often in a row that held
};

}  // namespace memx
