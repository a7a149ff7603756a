// An array over the whole reservation that costs memory only where it is touched: anonymous, unreserved,
// zero at first.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace memx {

template <class T>
class SparseArray {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

 public:
  explicit SparseArray(std::size_t count) : bytes_(count * sizeof(T) + 1) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(memory);
  }
  ~SparseArray() { munmap(data_, bytes_); }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t bytes_;
  T* data_;
};

// Memory, zero at first, for many small things that are looked at in no order: in huge pages where it is large and the
// system has them.
class HugeMemory {
 public:
  explicit HugeMemory(std::size_t bytes) : bytes_(bytes) {
    const std::size_t slack = bytes >= kHuge ? kHuge : 0;
    void* memory = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(memory);
    if (!slack) return;
    const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(data_) % kHuge) % kHuge;
    if (before) munmap(data_, before);
    data_ += before;
    if (before < slack) munmap(data_ + bytes, slack - before);
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  HugeMemory(HugeMemory&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  HugeMemory& operator=(HugeMemory other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HugeMemory() {
    if (data_) munmap(data_, bytes_);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kHuge = 2u << 20;
  std::size_t bytes_;
  char* data_;
};

}  // namespace memx
