// Who may touch a resource's state, and when.
//
// A short mutex guards all bookkeeping. It is let go for every driver call (`drive`) and every wait, so nobody waits
// behind the driver for it; a hit takes nothing else. Whoever changes what backs what passes the gate too, first come
// first served, and keeps it while the driver works: between its steps only hits have happened. Both are let go for
// waits and copies.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace memx {

class Gate {
 public:
  void lock() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t ticket = next_++;
    turn_.wait(lock, [&] { return serving_ == ticket; });
  }
  void unlock() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++serving_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0, serving_ = 0;
};

struct Locks {
  std::mutex mutex;
  Gate gate;
  unsigned inside = 0;  // calls in progress, waiting ones too
  bool closing = false;
  std::condition_variable left;
};

class Lock {
 public:
  explicit Lock(Locks& locks) : locks_(&locks), short_(locks.mutex) { ++locks.inside; }
  Lock(Lock&& other) noexcept
      : locks_(std::exchange(other.locks_, nullptr)), short_(std::move(other.short_)), past_gate_(other.past_gate_) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    if (!locks_) return;
    if (past_gate_) locks_->gate.unlock();
    --locks_->inside;
    if (locks_->closing) locks_->left.notify_all();  // before the unlock, after which whoever waited may destroy all of this
    short_.unlock();
  }

  // Both, as far as they are held.
  void unlock() {
    short_.unlock();
    if (past_gate_) locks_->gate.unlock();
  }
  void lock() {
    if (past_gate_) locks_->gate.lock();
    short_.lock();
  }
  // Passes the gate for good. What was learned before may have changed.
  void pass_gate() {
    if (past_gate_) return;
    short_.unlock();
    locks_->gate.lock();
    past_gate_ = true;
    short_.lock();
  }
  // Runs a driver call without the short lock.
  template <class Work>
  auto drive(Work work) {
    short_.unlock();
    struct Again {
      std::unique_lock<std::mutex>& lock;
      ~Again() { lock.lock(); }
    } again{short_};
    return work();
  }
  template <class Duration>
  std::cv_status wait_for(std::condition_variable& changed, Duration bound) {
    if (past_gate_) locks_->gate.unlock();
    const std::cv_status status = changed.wait_for(short_, bound);
    if (past_gate_) {
      short_.unlock();
      locks_->gate.lock();
      short_.lock();
    }
    return status;
  }
  bool past_gate() const { return past_gate_; }
  // Until this is the only call in progress.
  void wait_for_others() {
    locks_->closing = true;
    locks_->left.wait(short_, [&] { return locks_->inside == 1; });
  }

 private:
  Locks* locks_;
  std::unique_lock<std::mutex> short_;
  bool past_gate_ = false;
};

}  // namespace memx
