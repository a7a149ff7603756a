#include "physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

namespace memxsim {

Phys::~Phys() {
  switch (backing) {
    case Backing::extent: {
      Store& store = driver().store;
      store.give_extent(store.at(location), file_offset, round_up(bytes, kHostPage));
      break;
    }
    case Backing::anonymous:
      munmap(data, round_up(bytes, kHostPage));
      break;
    case Backing::foreign:
    case Backing::borrowed:
      break;
  }
}

bool Store::open(const std::vector<uint64_t>& device_bytes, uint64_t host_bytes, bool accounting_only) {
  accounting_only_ = accounting_only;
  uint64_t base = 0;
  auto limits = device_bytes;
  limits.push_back(host_bytes);
  for (const uint64_t limit : limits) {
    Area area;
    area.limit = limit;
    area.base = area.high_water = base;
    // Extents are contiguous in the file while pages of a GPU need not be: room for the file to fragment.
    area.span = round_up(limit, 1 << 21) * 4;
    base += area.span;
    areas_.push_back(std::move(area));
  }
  if (accounting_only) return true;
  file_ = memfd_create("memxsim", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(base)) != 0) return false;
  void* view = mmap(nullptr, base, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (view == MAP_FAILED) return false;
  view_ = static_cast<char*>(view);
  madvise(view_, base, MADV_DONTFORK);
  madvise(view_, base, MADV_DONTDUMP);
  return true;
}

bool Store::reserve(int location, uint64_t accounted) {
  Area& area = at(location);
  if (accounted > area.limit - area.used) return false;
  area.used += accounted;
  return true;
}

PhysRef Store::create(int location, uint64_t bytes) {
  const uint64_t extent = round_up(bytes, kHostPage);
  if (extent < bytes || !reserve(location, extent)) return nullptr;
  uint64_t offset = 0;
  if (!take_extent(at(location), extent, &offset)) {
    at(location).used -= extent;
    return nullptr;
  }
  auto phys = std::make_shared<Phys>();
  phys->location = location;
  phys->bytes = bytes;
  phys->accounted = extent;
  phys->file_offset = offset;
  phys->data = accounting_only_ ? nullptr : view_ + offset;
  return phys;
}

PhysRef Store::create_pinned(uint64_t bytes) {
  const uint64_t extent = round_up(bytes, kHostPage);
  if (extent < bytes || !reserve(kHost, extent)) return nullptr;
  void* data = mmap(nullptr, extent, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    at(kHost).used -= extent;
    return nullptr;
  }
  pinned_ += extent;
  auto phys = std::make_shared<Phys>();
  phys->location = kHost;
  phys->bytes = bytes;
  phys->accounted = extent;
  phys->data = static_cast<char*>(data);
  phys->backing = Phys::Backing::anonymous;
  return phys;
}

PhysRef Store::adopt(char* data, uint64_t bytes) {
  if (!reserve(kHost, bytes)) return nullptr;
  pinned_ += bytes;
  auto phys = std::make_shared<Phys>();
  phys->location = kHost;
  phys->bytes = phys->accounted = bytes;
  phys->data = data;
  phys->backing = Phys::Backing::foreign;
  return phys;
}

void Store::retire(Phys& phys) {
  at(phys.location).used -= phys.accounted;
  if (phys.backing != Phys::Backing::extent) pinned_ -= phys.accounted;
  phys.accounted = 0;
}

void Store::add_free(Area& area, uint64_t offset, uint64_t bytes) {
  area.free_at.emplace(offset, bytes);
  area.free_by_size.emplace(bytes, offset);
}

void Store::drop_free(Area& area, std::map<uint64_t, uint64_t>::iterator position) {
  area.free_by_size.erase({position->second, position->first});
  area.free_at.erase(position);
}

bool Store::take_extent(Area& area, uint64_t bytes, uint64_t* offset) {
  const auto best = area.free_by_size.lower_bound({bytes, 0});
  if (best != area.free_by_size.end()) {
    const auto [size, at] = *best;
    drop_free(area, area.free_at.find(at));
    if (size > bytes) add_free(area, at + bytes, size - bytes);
    *offset = at;
    return true;
  }
  if (area.high_water + bytes > area.base + area.span) return false;
  if (!accounting_only_ && area.high_water + bytes > area.base + area.limit) {
    // The file is fragmented: give the free extents' pages back, so that what is resident stays within the limit.
    for (const auto& [at, size] : area.free_at)
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(size));
  }
  *offset = area.high_water;
  area.high_water += bytes;
  return true;
}

void Store::give_extent(Area& area, uint64_t offset, uint64_t bytes) {
  auto next = area.free_at.lower_bound(offset);
  if (next != area.free_at.end() && next->first == offset + bytes) {
    bytes += next->second;
    drop_free(area, next);
  }
  next = area.free_at.lower_bound(offset);
  if (next != area.free_at.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      drop_free(area, before);
    }
  }
  add_free(area, offset, bytes);
}

}  // namespace memxsim
