// The address range of a device: one reservation, cut into runs of pages and coalesced again. Knows nothing of
// what backs them. Pages are counted from the start of the reservation.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>

#include "memx/driver.h"

namespace memx {

class AddressSpace {
 public:
  // Reserves `pages` pages, or half as many and so on while the driver refuses, down to `least`.
  AddressSpace(Device& device, std::uint64_t page_bytes, std::uint64_t pages, std::uint64_t least);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  CUdeviceptr base() const { return base_; }
  std::uint64_t pages() const { return pages_; }
  std::uint64_t page_bytes() const { return page_bytes_; }

  // Exactly [first, first + count), if all of it is free.
  bool claim_at(std::uint64_t first, std::uint64_t count);
  // Anywhere, with room to grow behind it where there is any.
  std::optional<std::uint64_t> claim(std::uint64_t count);
  void give_back(std::uint64_t first, std::uint64_t count);
  std::uint64_t free_pages() const { return free_pages_; }
  std::uint64_t largest_free_pages() const;

 private:
  void take(std::map<std::uint64_t, std::uint64_t>::iterator range, std::uint64_t first, std::uint64_t count);

  Device& device_;
  std::uint64_t page_bytes_;
  std::uint64_t pages_ = 0;
  CUdeviceptr base_ = 0;
  std::uint64_t free_pages_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // first page -> count; never adjacent
};

}  // namespace memx
