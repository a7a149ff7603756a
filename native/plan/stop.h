// When to stop: at a deadline, or when somebody outside says so.
#pragma once

#include <atomic>
#include <chrono>

namespace memx::plan {

class Stop {
 public:
  using Clock = std::chrono::steady_clock;

  Stop(double seconds, const std::atomic<bool>& cancelled) : cancelled_(cancelled) {
    const double bounded = seconds > 0 ? (seconds < 1e8 ? seconds : 1e8) : 0;
    deadline_ = start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
  }

  // Cheap enough for inner loops: looks at the clock once in 64 calls.
  bool operator()() { return stopped_ || ((++calls_ & 63) == 0 && now()); }
  bool now() { return stopped_ = stopped_ || cancelled() || Clock::now() >= deadline_; }

  const std::atomic<bool>& cancelled_flag() const { return cancelled_; }
  // How much of the time is over, 0 to 1 and on.
  double spent() const {
    const double all = std::chrono::duration<double>(deadline_ - start_).count();
    return all > 0 ? std::chrono::duration<double>(Clock::now() - start_).count() / all : 1;
  }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_;
  const std::atomic<bool>& cancelled_;
  unsigned calls_ = 0;
  bool stopped_ = false;
};

}  // namespace memx::plan
