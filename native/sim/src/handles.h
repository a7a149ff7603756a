// Handles of streams and events. They come from a fixed range, so that a stray pointer is recognised without
// being followed, and the one freed last is given out first, so that a program that keeps a stale one meets
// its next owner soon.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

#include "stream.h"

namespace memxsim {

struct StreamHandle {
  std::atomic<uint64_t> id{0};  // 0: not in use; readable without the lock
  QueueRef queue;
};

struct EventHandle {
  bool live = false;
  unsigned flags = 0;
  Context* context = nullptr;
  std::shared_ptr<EventRecord> record;  // null until recorded
  // Recorded last during a capture: which node's completion it stands for.
  uint64_t capture_id = 0;
  std::vector<GraphNode*> captured;
};

template <typename T>
class HandlePool {
 public:
  explicit HandlePool(size_t capacity) : capacity_(capacity) {
    void* got = mmap(nullptr, capacity * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    slots_ = got == MAP_FAILED ? nullptr : static_cast<T*>(got);
  }

  T* take() {
    ++in_use_;
    if (!free_.empty()) {
      T* slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (!slots_ || made_.load(std::memory_order_relaxed) == capacity_) {
      --in_use_;
      return nullptr;
    }
    T* slot = new (slots_ + made_.load(std::memory_order_relaxed)) T;
    made_.fetch_add(1, std::memory_order_release);
    return slot;
  }

  void give(T* slot) {
    --in_use_;
    free_.push_back(slot);
  }

  // Null if the pointer was never a handle.
  T* check(const void* pointer) const {
    const auto offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(slots_);
    if (!slots_ || offset % sizeof(T) || offset / sizeof(T) >= made_.load(std::memory_order_acquire)) return nullptr;
    return slots_ + offset / sizeof(T);
  }

  size_t in_use() const { return in_use_; }

 private:
  size_t capacity_;
  T* slots_;
  std::atomic<size_t> made_{0};
  std::vector<T*> free_;
  size_t in_use_ = 0;
};

}  // namespace memxsim
