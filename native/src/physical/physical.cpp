#include "memx/physical.h"

#include <algorithm>

namespace memx {

Physical::Physical(Device& device, std::uint64_t page_bytes, std::uint64_t device_limit, std::uint64_t host_limit)
    : device_(device), page_bytes_(page_bytes), device_limit_(device_limit), host_limit_(host_limit) {}

Physical::~Physical() {
  for (Tier tier : {Tier::kDevice, Tier::kHost, Tier::kPinned}) trim(tier, 0);
}

CUmemAllocationProp Physical::properties(Tier tier) const {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  if (tier == Tier::kDevice) {
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device_.ordinal();
  } else {
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = 0;
  }
  return prop;
}

CUresult Physical::create(Tier tier, unsigned order, Handle& out) {
  const std::uint64_t bytes = page_bytes_ << order;
  CUresult result;
  if (tier == Tier::kPinned) {
    ContextScope current(device_);
    void* pages = nullptr;
    result = MEMX_CALL(device_, cuMemHostAlloc, &pages, bytes, unsigned(CU_MEMHOSTALLOC_PORTABLE));
    out.value = reinterpret_cast<std::uint64_t>(pages);
  } else {
    CUmemAllocationProp prop = properties(tier);
    CUmemGenericAllocationHandle handle = 0;
    result = MEMX_CALL(device_, cuMemCreate, &handle, bytes, &prop, 0ull);
    out.value = handle;
  }
  if (result != CUDA_SUCCESS) return result;
  out.order = static_cast<std::uint8_t>(order);
  out.tier = tier;
  out.fresh = true;
  count(tier, true, bytes);
  peak_host_bytes = std::max(peak_host_bytes.load(), host_bytes());
  return CUDA_SUCCESS;
}

CUresult Physical::release(const Handle& handle) {
  CUresult result;
  if (handle.tier == Tier::kPinned) {
    ContextScope current(device_);
    result = MEMX_CALL(device_, cuMemFreeHost, reinterpret_cast<void*>(handle.value));
  } else {
    result = MEMX_CALL(device_, cuMemRelease, handle.value);
  }
  if (result == CUDA_SUCCESS) count(handle.tier, false, page_bytes_ << handle.order);
  return result;
}

void Physical::count(Tier tier, bool created, std::uint64_t bytes) {
  std::lock_guard<std::mutex> lock(counts_);
  Held& held = held_[static_cast<int>(tier)];
  if (created) {
    held.bytes.add(bytes);
    held.handles.add(1);
  } else {
    held.bytes.remove(bytes);
    held.handles.remove(1);
  }
}

void Physical::reset_peaks() {
  {
    std::lock_guard<std::mutex> lock(counts_);
    for (Held& held : held_) held.bytes.reset_peak(), held.handles.reset_peak();
  }
  peak_host_bytes = host_bytes();
}

void Physical::reset_totals() {
  std::lock_guard<std::mutex> lock(counts_);
  for (Held& held : held_) held.bytes.reset_totals(), held.handles.reset_totals();
}

std::uint64_t Physical::room_bytes(Tier tier) const {
  std::uint64_t held = tier == Tier::kDevice ? held_bytes(tier) - cached_bytes(tier)
                                             : host_bytes() - cached_bytes(Tier::kHost) - cached_bytes(Tier::kPinned);
  return limit(tier) > held ? limit(tier) - held : 0;
}

void Physical::set_device_limit(std::uint64_t bytes) {
  device_limit_ = bytes;
  if (const std::uint64_t now = held_bytes(Tier::kDevice), cached = cached_bytes(Tier::kDevice); now > bytes)
    trim(Tier::kDevice, cached > now - bytes ? cached - (now - bytes) : 0);
}

// Host tiers share a limit, so one's cache may stand in the other's way.
bool Physical::shrink_host_cache(Tier wanted, std::uint64_t bytes) {
  Tier other = wanted == Tier::kHost ? Tier::kPinned : Tier::kHost;
  std::uint64_t cached = cached_bytes(other);
  return cached > 0 && trim(other, cached > bytes ? cached - bytes : 0) > 0;
}

CUresult Physical::acquire(Tier tier, std::uint64_t pages, std::vector<Handle>& out, bool may_release, bool together) {
  if (room_bytes(tier) / page_bytes_ < pages) return CUDA_ERROR_OUT_OF_MEMORY;
  const int t = static_cast<int>(tier);
  const unsigned max_order = tier != Tier::kPinned ? kMaxOrder : together ? kMaxPinnedOrder : 0;
  std::vector<Handle> taken;
  std::uint64_t left = pages;
  for (int order = static_cast<int>(max_order); order >= 0; --order)
    while (left >> order && !cached_[t][order].empty()) {
      taken.push_back(cached_[t][order].back());
      cached_[t][order].pop_back();
      cached_bytes_[t] -= page_bytes_ << order;
      left -= 1ull << order;
    }
  CUresult result = CUDA_SUCCESS;
  while (left > 0 && result == CUDA_SUCCESS) {
    unsigned order = max_order;
    while (!(left >> order)) --order;
    const std::uint64_t bytes = page_bytes_ << order;
    auto held = [&] { return tier == Tier::kDevice ? held_bytes(tier) : host_bytes(); };
    while (may_release && held() + bytes > limit(tier)) {
      // Cached handles left here are larger than what is missing: given back, and created anew in pages.
      if (trim(tier, cached_bytes_[t] > bytes ? cached_bytes_[t] - bytes : 0) > 0) continue;
      if (tier != Tier::kDevice && shrink_host_cache(tier, bytes)) continue;
      break;
    }
    if (held() + bytes > limit(tier)) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    Handle handle;
    result = create(tier, order, handle);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && may_release && cached_bytes_[t] > 0 && trim(tier, 0) > 0)
      result = create(tier, order, handle);
    if (result == CUDA_SUCCESS) {
      taken.push_back(handle);
      left -= 1ull << order;
    }
  }
  if (result != CUDA_SUCCESS) {
    give_back(taken);
    return result;
  }
  out.insert(out.end(), taken.begin(), taken.end());
  return CUDA_SUCCESS;
}

void Physical::put(Handle handle) {
  handle.fresh = false;
  const int t = static_cast<int>(handle.tier);
  cached_[t][handle.order].push_back(handle);
  cached_bytes_[t] += page_bytes_ << handle.order;
}

void Physical::give_back(std::vector<Handle>& handles) {
  for (Handle& handle : handles)
    if (!handle.fresh || release(handle) != CUDA_SUCCESS) put(handle);
  handles.clear();
}

std::uint64_t Physical::trim(Tier tier, std::uint64_t keep_bytes) {
  const int t = static_cast<int>(tier);
  std::uint64_t released = 0;
  for (int order = kMaxPinnedOrder; order >= 0; --order) {
    auto& cached = cached_[t][order];
    while (!cached.empty() && cached_bytes_[t] > keep_bytes) {
      if (release(cached.back()) != CUDA_SUCCESS) break;
      cached.pop_back();
      cached_bytes_[t] -= page_bytes_ << order;
      released += page_bytes_ << order;
    }
  }
  return released;
}

}  // namespace memx
