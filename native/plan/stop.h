// When to stop: a deadline, or a signal that Python wants to raise.
#pragma once

#include <chrono>
#include <functional>

namespace memx::plan {

class Stop {
 public:
  using Clock = std::chrono::steady_clock;

  // `interrupted` is asked about every 50 ms whether somebody wants the work to end.
  Stop(double seconds, std::function<bool()> interrupted)
      : start_(Clock::now()), asked_(start_), interrupted_(std::move(interrupted)) {
    const double bounded = seconds < 0 ? 0 : (seconds > 1e8 ? 1e8 : seconds);
    deadline_ = start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
  }

  // Cheap enough for inner loops: looks at the clock once in 64 calls.
  bool operator()() { return stopped_ || ((++calls_ & 63) == 0 && now()); }

  bool now() {
    if (stopped_) return true;
    const auto t = Clock::now();
    if (t - asked_ >= std::chrono::milliseconds(50)) {
      asked_ = t;
      if (interrupted_ && interrupted_()) signalled_ = stopped_ = true;
    }
    if (t >= deadline_) stopped_ = true;
    return stopped_;
  }

  bool signalled() const { return signalled_; }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  Clock::time_point start_, asked_, deadline_;
  std::function<bool()> interrupted_;
  unsigned calls_ = 0;
  bool stopped_ = false;
  bool signalled_ = false;
};

}  // namespace memx::plan
