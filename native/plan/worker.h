// A thread of its own for deep recursion: its stack does not depend on who calls.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>

namespace memx::plan {

class Worker {
 public:
  explicit Worker(std::function<void()> work) : work_(std::move(work)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const int failed = pthread_create(&thread_, &attributes, &Worker::main, this);
    pthread_attr_destroy(&attributes);
    if (failed != 0) throw std::system_error(failed, std::generic_category(), "cannot start the planner's thread");
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { pthread_join(thread_, nullptr); }

  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return done_; });
  }

  // Once done: what the work threw.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr std::size_t kStackBytes = 64u << 20;  // touched as far as it is used

  static void* main(void* self) {
    auto& worker = *static_cast<Worker*>(self);
    try {
      worker.work_();
    } catch (...) {
      worker.error_ = std::current_exception();
    }
    std::lock_guard lock(worker.mutex_);
    worker.done_ = true;
    worker.changed_.notify_all();
    return nullptr;
  }

  std::function<void()> work_;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  pthread_t thread_;
};

}  // namespace memx::plan
