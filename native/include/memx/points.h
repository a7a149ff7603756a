// Points in streams' queues, and sets of them: what memory waits for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace memx {

using Slot = std::uint32_t;  // index of a stream in its StreamTable

// A few values inline, more on the heap. Sixteen bytes beside them.
template <class T, std::uint32_t kInline>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVector() = default;
  SmallVector(const SmallVector& other) { append(other); }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    discard();
    take(other);
    return *this;
  }
  ~SmallVector() { discard(); }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  void clear() { size_ = 0; }
  void push_back(T value) {
    if (size_ == capacity_) grow();
    data_[size_++] = value;
  }
  template <class Predicate>
  void remove_if(Predicate predicate) {
    size_ = static_cast<std::uint32_t>(std::remove_if(begin(), end(), predicate) - begin());
  }

 private:
  void append(const SmallVector& other) {
    for (const T& value : other) push_back(value);
  }
  [[gnu::noinline]] void grow() {
    T* larger = new T[2 * capacity_];
    std::copy(begin(), end(), larger);
    discard();
    data_ = larger;
    capacity_ *= 2;
  }
  void discard() {
    if (data_ != inline_) delete[] data_;
  }
  void take(SmallVector& other) {
    std::copy(other.inline_, other.inline_ + kInline, inline_);
    data_ = other.data_ == other.inline_ ? inline_ : std::exchange(other.data_, other.inline_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInline);
  }
  T inline_[kInline] = {};
  T* data_ = inline_;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kInline;
};

// Everything queued on a stream when its points had this number.
class Point {
 public:
  Point() = default;
  Point(Slot slot, std::uint64_t number) : bits_(number << kSlotBits | slot) {}
  static constexpr unsigned kSlotBits = 20;
  static constexpr Slot kSlots = 1u << kSlotBits;

  Slot slot() const { return static_cast<Slot>(bits_) % kSlots; }
  std::uint64_t number() const { return bits_ >> kSlotBits; }

 private:
  std::uint64_t bits_ = 0;
};

// The latest point of each stream in a set of points.
class PointSet : public SmallVector<Point, 2> {
 public:
  void add(Point point) {
    for (Point& known : *this)
      if (known.slot() == point.slot()) {
        if (known.number() < point.number()) known = point;
        return;
      }
    push_back(point);
  }
  void merge(const PointSet& other) {
    for (const Point& point : other) add(point);
  }
};

}  // namespace memx
