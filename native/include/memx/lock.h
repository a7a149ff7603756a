// Who may touch a resource's state, and when.
//
// A short mutex guards all bookkeeping. It is let go for every driver call (`drive`) and every wait, so nobody waits
// behind the driver for it; a hit takes nothing else. Whoever changes what backs what passes the gate too, first come
// first served, and keeps it while the driver works: between its steps only hits have happened. Both are let go for
// waits and copies.
#pragma once

#include <algorithm>
#include <atomic>
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
  bool try_lock() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (serving_ != next_) return false;
    ++next_;
    return true;
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

// Held for less time than going to sleep takes. One atomic step to take it and one to let it go where nobody else wants it.
//
// Whoever finds it taken looks again, at growing distances, so that one core makes many calls before the state they work
// on moves to the next core; then it sleeps. One sleeper at a time is on its way: until that one has had its look,
// nobody makes a system call for the others. So while somebody sleeps, it is taken or one of them is on its way.
// Nothing of it is touched once it is let go: the next owner may destroy it.
class ShortMutex {
 public:
  void lock() {
    if (!try_lock()) lock_taken();
  }
  bool try_lock() { return !(state_.fetch_or(kTaken, std::memory_order_acquire) & kTaken); }
  void unlock() {
    unsigned state = kTaken;
    if (!state_.compare_exchange_strong(state, 0, std::memory_order_release, std::memory_order_relaxed)) unlock_wanted(state);
  }

 private:
  static constexpr unsigned kTaken = 1, kComing = 2, kSleeper = 4;  // sleepers are counted above the two bits
  static constexpr int kLooks = 24, kFarthest = 64;                 // pauses between two looks

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  bool look() {
    for (int look = 0, distance = 1; look < kLooks; ++look, distance = std::min(2 * distance, kFarthest)) {
      for (int i = 0; i < distance; ++i) pause();
      if (!(state_.load(std::memory_order_relaxed) & kTaken) && try_lock()) return true;
    }
    return false;
  }
  [[gnu::noinline]] void lock_taken() {
    if (look()) return;
    unsigned turn = turn_.load(std::memory_order_relaxed);
    unsigned state = state_.fetch_add(kSleeper) + kSleeper;
    for (;;) {
      while (!(state & kTaken))
        if (state_.compare_exchange_weak(state, ((state - kSleeper) | kTaken) & ~kComing)) return;
      turn_.wait(turn);
      if (look()) {
        state_.fetch_and(~kComing);  // the next unlock calls the next one
        state_.fetch_sub(kSleeper);
        return;
      }
      turn = turn_.load(std::memory_order_relaxed);
      state = state_.fetch_and(~kComing) & ~kComing;
    }
  }
  // A sleeper is called before the lock is let go. One that comes so early that it sleeps again has changed the state.
  [[gnu::noinline]] void unlock_wanted(unsigned state) {
    bool call = false;
    do
      if (state >= kSleeper && !(state & kComing)) {
        state = state_.fetch_or(kComing) | kComing;
        turn_.fetch_add(1);
        call = true;
      }
    while (!state_.compare_exchange_weak(state, state - kTaken));
    if (call) turn_.notify_one();
  }

  std::atomic<unsigned> state_{0};
  std::atomic<unsigned> turn_{0};  // the sleepers' word: it changes when one is to come
};

struct Locks {
  ShortMutex mutex;
  Gate gate;
  unsigned inside = 0;  // calls in progress, waiting ones too
  bool closing = false;
  std::condition_variable_any left;
};

class Lock {
 public:
  explicit Lock(Locks& locks) : locks_(&locks) {
    locks.mutex.lock();
    ++locks.inside;
  }
  Lock(Lock&& other) noexcept : locks_(std::exchange(other.locks_, nullptr)), past_gate_(other.past_gate_) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    if (!locks_) return;
    if (past_gate_) locks_->gate.unlock();
    --locks_->inside;
    if (locks_->closing) locks_->left.notify_all();  // before the unlock, after which whoever waited may destroy all of this
    locks_->mutex.unlock();
  }

  // Both, as far as they are held.
  void unlock() {
    locks_->mutex.unlock();
    if (past_gate_) locks_->gate.unlock();
  }
  void lock() {
    if (past_gate_) locks_->gate.lock();
    locks_->mutex.lock();
  }
  // Passes the gate for good. What was learned before may have changed.
  void pass_gate() {
    if (past_gate_) return;
    locks_->mutex.unlock();
    locks_->gate.lock();
    past_gate_ = true;
    locks_->mutex.lock();
  }
  // The same where nobody else is past it or waits for it; nothing has changed then. False: somebody is.
  bool try_gate() { return past_gate_ || (past_gate_ = locks_->gate.try_lock()); }
  // Runs a driver call without the short lock.
  template <class Work>
  auto drive(Work work) {
    locks_->mutex.unlock();
    struct Again {
      ShortMutex& mutex;
      ~Again() { mutex.lock(); }
    } again{locks_->mutex};
    return work();
  }
  template <class Duration>
  std::cv_status wait_for(std::condition_variable_any& changed, Duration bound) {
    if (past_gate_) locks_->gate.unlock();
    const std::cv_status status = changed.wait_for(locks_->mutex, bound);
    if (past_gate_) {
      locks_->mutex.unlock();
      locks_->gate.lock();
      locks_->mutex.lock();
    }
    return status;
  }
  bool past_gate() const { return past_gate_; }
  // Until this is the only call in progress.
  void wait_for_others() {
    locks_->closing = true;
    locks_->left.wait(locks_->mutex, [&] { return locks_->inside == 1; });
  }

 private:
  Locks* locks_;
  bool past_gate_ = false;
};

}  // namespace memx
