#include "address.h"

#include <sys/mman.h>

#include <algorithm>

namespace memxsim {

namespace {
constexpr uint64_t kArenaBytes = uint64_t{1} << 43, kLeastArenaBytes = uint64_t{1} << 34;
constexpr uint64_t kDeviceAlignment = 512;
constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* address(uint64_t va) { return reinterpret_cast<void*>(va); }
}  // namespace

uint64_t AddressSpace::reserve(uint64_t bytes, uint64_t alignment, uint64_t hint) {
  if (hint % alignment == 0 && hint) {
    void* got = mmap(address(hint), bytes, PROT_NONE, kReserved | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED) {
      const auto va = reinterpret_cast<uint64_t>(got);
      if (va == hint) {
        reservations_[va] = {va, bytes};
        return va;
      }
      munmap(got, bytes);
    }
  }
  const uint64_t slack = alignment > kHostPage ? alignment : 0;
  if (bytes + slack < bytes) return 0;
  void* got = mmap(nullptr, bytes + slack, PROT_NONE, kReserved, -1, 0);
  if (got == MAP_FAILED) return 0;
  const auto raw = reinterpret_cast<uint64_t>(got);
  const uint64_t va = round_up(raw, alignment);
  if (va > raw) munmap(got, va - raw);
  if (const uint64_t tail = raw + slack - va) munmap(address(va + bytes), tail);
  reservations_[va] = {va, bytes};
  return va;
}

void AddressSpace::unreserve(const Reservation& reservation) {
  munmap(address(reservation.va), reservation.bytes);
  reservations_.erase(reservation.va);
}

const Reservation* AddressSpace::reservation_at(uint64_t va) const {
  auto after = reservations_.upper_bound(va);
  if (after == reservations_.begin()) return nullptr;
  const Reservation& before = std::prev(after)->second;
  return va < before.end() ? &before : nullptr;
}

const Reservation* AddressSpace::reservation_starting(uint64_t va) const {
  const auto found = reservations_.find(va);
  return found == reservations_.end() ? nullptr : &found->second;
}

Region& AddressSpace::add(Region region) {
  region.buffer_id = next_buffer_id_++;
  if (region.kind == Region::Kind::mapping) ++mappings_;
  ++region.phys->mappings;
  const uint64_t va = region.va;
  return regions_.emplace(va, std::move(region)).first->second;
}

void AddressSpace::remove(uint64_t va) {
  const auto found = regions_.find(va);
  Region& region = found->second;
  if (region.kind == Region::Kind::mapping) {
    unmap_from_cpu(region);
    --mappings_;
  }
  Phys& phys = *region.phys;
  if (--phys.mappings == 0 && phys.handle_refs == 0) store_.retire(phys);
  regions_.erase(found);
}

Region* AddressSpace::find(uint64_t va) {
  auto after = regions_.upper_bound(va);
  if (after == regions_.begin()) return nullptr;
  Region& before = std::prev(after)->second;
  return va < before.end() ? &before : nullptr;
}

Region* AddressSpace::starting_at(uint64_t va) {
  const auto found = regions_.find(va);
  return found == regions_.end() ? nullptr : &found->second;
}

bool AddressSpace::overlaps(uint64_t va, uint64_t bytes) const {
  const auto after = regions_.lower_bound(va);
  if (after != regions_.end() && after->first < va + bytes) return true;
  return after != regions_.begin() && std::prev(after)->second.end() > va;
}

std::vector<Region*> AddressSpace::exactly(uint64_t va, uint64_t bytes) {
  std::vector<Region*> found;
  uint64_t next = va;
  for (auto at = regions_.find(va); at != regions_.end() && next < va + bytes; ++at) {
    if (at->first != next) return {};
    found.push_back(&at->second);
    next = at->second.end();
  }
  return next == va + bytes ? found : std::vector<Region*>{};
}

std::vector<Region*> AddressSpace::covering(uint64_t va, uint64_t bytes) {
  std::vector<Region*> found;
  auto at = regions_.upper_bound(va);
  if (at == regions_.begin()) return {};
  --at;
  uint64_t next = va;
  const uint64_t end = va + bytes;
  while (at != regions_.end() && at->first <= next && at->second.end() > next) {
    found.push_back(&at->second);
    next = at->second.end();
    if (next >= end) return found;
    ++at;
  }
  return {};
}

bool AddressSpace::covered(uint64_t va, uint64_t bytes) {
  return bytes == 0 ? find(va) != nullptr : va + bytes > va && !covering(va, bytes).empty();
}

bool AddressSpace::resolve(int device, uint64_t va, uint64_t bytes, bool write, std::vector<Span>& spans) {
  if (bytes == 0) return true;
  const uint64_t end = va + bytes;
  if (end < va) return false;
  auto at = regions_.upper_bound(va);
  if (at == regions_.begin()) return false;
  --at;
  const uint8_t needed = write ? kReadWrite : kRead;
  for (uint64_t next = va; next < end; ++at) {
    if (at == regions_.end()) return false;
    Region& region = at->second;
    if (region.va > next || region.end() <= next) return false;
    if ((region.device_access[device] & needed) != needed) return false;
    const uint64_t stop = region.end() < end ? region.end() : end;
    char* data = region.phys->data ? region.phys->data + (next - region.va) : nullptr;
    spans.push_back({data, stop - next, region.phys->behind ? region.phys->behind : region.phys});
    next = stop;
  }
  return true;
}

uint64_t AddressSpace::take_device_va(uint64_t bytes) {
  if (!arena_) {
    uint64_t size = kArenaBytes;
    void* got = mmap(nullptr, size, PROT_NONE, kReserved, -1, 0);
    for (; got == MAP_FAILED && size > kLeastArenaBytes; got = mmap(nullptr, size, PROT_NONE, kReserved, -1, 0))
      size /= 2;  // sanitizers leave less room
    if (got == MAP_FAILED) return 0;
    arena_ = reinterpret_cast<uint64_t>(got);
    arena_next_ = round_up(arena_, 1 << 21);
    arena_end_ = arena_ + size;
  }
  // Large allocations begin on 2 MiB as on hardware; a gap follows each, so that running over an end is found.
  const uint64_t alignment = bytes >= (1 << 20) ? 1 << 21 : kDeviceAlignment;
  const uint64_t room = round_up(bytes + kDeviceAlignment, alignment);
  const auto reuse = arena_free_.find(room);
  uint64_t va = 0;
  if (reuse != arena_free_.end()) {
    va = reuse->second;
    arena_free_.erase(reuse);
  } else {
    va = round_up(arena_next_, alignment);
    if (va + room > arena_end_) return 0;
    arena_next_ = va + room;
  }
  arena_taken_[va] = room;
  return va;
}

void AddressSpace::give_device_va(uint64_t va) {
  const auto taken = arena_taken_.find(va);
  if (taken == arena_taken_.end()) return;
  arena_free_.emplace(taken->second, va);
  arena_taken_.erase(taken);
}

std::vector<Region*> AddressSpace::allocations_of(int device) {
  std::vector<Region*> found;
  for (auto& [va, region] : regions_)
    if (region.kind == Region::Kind::device && region.phys->location == device) found.push_back(&region);
  return found;
}

void AddressSpace::grant_peer(int owner, int device, uint8_t access) {
  peers_[owner][device] = access;
  for (Region* region : allocations_of(owner)) region->device_access[device] = access;
}

void AddressSpace::grant_pool(const void* pool, const uint8_t (&access)[kMaxDevices]) {
  for (auto& [va, region] : regions_)
    if (region.pool == pool) std::copy(std::begin(access), std::end(access), region.device_access.begin());
}

bool AddressSpace::map_to_cpu(Region& region, uint8_t access) {
  if (access == region.host_access) return true;
  if (access == kNoAccess) {
    unmap_from_cpu(region);
    return true;
  }
  if (!store_.accounting_only()) {
    const int protection = access == kRead ? PROT_READ : PROT_READ | PROT_WRITE;
    void* got = mmap(address(region.va), region.bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                     store_.file(), static_cast<off_t>(region.phys->file_offset));
    if (got == MAP_FAILED) return false;
  }
  region.host_access = access;
  return true;
}

void AddressSpace::unmap_from_cpu(Region& region) {
  if (region.host_access == kNoAccess) return;
  region.host_access = kNoAccess;
  if (!store_.accounting_only())
    mmap(address(region.va), region.bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
}

}  // namespace memxsim
