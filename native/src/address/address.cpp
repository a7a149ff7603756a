#include "memx/address.h"

namespace memx {

AddressSpace::AddressSpace(Device& device, std::uint64_t page_bytes, std::uint64_t pages, std::uint64_t least)
    : device_(device), page_bytes_(page_bytes) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (; pages >= least && result != CUDA_SUCCESS; pages /= 2) {
    result = MEMX_CALL(device_, cuMemAddressReserve, &base_, std::size_t(pages * page_bytes), std::size_t(0), CUdeviceptr(0), 0ull);
    pages_ = pages;
  }
  if (result != CUDA_SUCCESS) {
    pages_ = 0;
    device_.raise(result, Call::cuMemAddressReserve, "reserving addresses");
  }
  free_[0] = free_pages_ = pages_;
}

AddressSpace::~AddressSpace() {
  if (pages_) MEMX_CALL(device_, cuMemAddressFree, base_, std::size_t(pages_ * page_bytes_));
}

void AddressSpace::take(std::map<std::uint64_t, std::uint64_t>::iterator range, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t start = range->first, end = start + range->second;
  if (first == start)
    free_.erase(range);
  else
    range->second = first - start;
  if (first + count < end) free_[first + count] = end - (first + count);
  free_pages_ -= count;
}

bool AddressSpace::claim_at(std::uint64_t first, std::uint64_t count) {
  auto range = free_.upper_bound(first);
  if (range == free_.begin()) return false;
  --range;
  if (first + count > range->first + range->second) return false;
  take(range, first, count);
  return true;
}

std::optional<std::uint64_t> AddressSpace::claim(std::uint64_t count) {
  auto largest = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range)
    if (largest == free_.end() || range->second > largest->second) largest = range;
  if (largest == free_.end() || largest->second < count) return std::nullopt;
  // The middle of the largest range: what ends before it can grow as far as this one can.
  std::uint64_t first = largest->first;
  if (first != 0 && largest->second / 2 >= count) first += largest->second / 2;
  take(largest, first, count);
  return first;
}

void AddressSpace::give_back(std::uint64_t first, std::uint64_t count) {
  free_pages_ += count;
  auto next = free_.lower_bound(first);
  if (next != free_.end() && first + count == next->first) {
    count += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == first) {
      before->second += count;
      return;
    }
  }
  free_[first] = count;
}

std::uint64_t AddressSpace::largest_free_pages() const {
  std::uint64_t largest = 0;
  for (const auto& [first, count] : free_) largest = count > largest ? count : largest;
  return largest;
}

}  // namespace memx
