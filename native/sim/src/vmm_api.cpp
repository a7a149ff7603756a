// Virtual memory management: reservations, handles, mappings, access.
#include <algorithm>

#include "state.h"

using namespace memxsim;

namespace {

bool page_aligned(uint64_t value) { return value % driver().config.page_bytes == 0; }
bool power_of_two(uint64_t value) { return value && (value & (value - 1)) == 0; }
bool valid_device(int device) { return device >= 0 && device < static_cast<int>(driver().config.devices); }

// The location an allocation would have; a device ordinal or kHost.
CUresult location_of(const CUmemAllocationProp& prop, int* location) {
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (prop.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!valid_device(prop.location.id)) return CUDA_ERROR_INVALID_DEVICE;
      *location = prop.location.id;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (prop.location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
      [[fallthrough]];
    case CU_MEM_LOCATION_TYPE_HOST:
      if (!driver().config.host_mappable) return CUDA_ERROR_NOT_SUPPORTED;
      if (prop.requestedHandleTypes) return CUDA_ERROR_INVALID_VALUE;
      *location = kHost;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool access_flags(CUmemAccess_flags flags, uint8_t* access) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE: *access = kNoAccess; return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READ: *access = kRead; return true;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: *access = kReadWrite; return true;
    default: return false;
  }
}

// Whether the location may be given access to the region.
CUresult check_access(const Region& region, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return valid_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      return region.phys->on_host() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return region.phys->properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? CUDA_SUCCESS
                                                                                    : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

PhysRef handle_named(CUmemGenericAllocationHandle handle) {
  const auto found = driver().handles.find(handle);
  return found == driver().handles.end() ? nullptr : found->second;
}

std::vector<Region*> mappings_exactly(uint64_t va, uint64_t bytes) {
  auto regions = driver().addresses.exactly(va, bytes);
  for (const Region* region : regions)
    if (region->kind != Region::Kind::mapping) return {};
  return regions;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags) {
  ENTER(cuMemAddressReserve);
  if (!out || !size || flags || !page_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment && !power_of_two(alignment)) return CUDA_ERROR_INVALID_VALUE;
  if (hint % kHostPage) return CUDA_ERROR_INVALID_VALUE;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const uint64_t va = d.addresses.reserve(size, std::max<uint64_t>(alignment, d.config.page_bytes), hint);
  if (!va) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = va;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr va, size_t size) {
  ENTER(cuMemAddressFree);
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const Reservation* reservation = d.addresses.reservation_starting(va);
  if (!reservation || reservation->bytes != size || d.addresses.overlaps(va, size)) return CUDA_ERROR_INVALID_VALUE;
  d.addresses.unreserve(*reservation);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* out, size_t size, const CUmemAllocationProp* prop,
                             unsigned long long flags) {
  ENTER(cuMemCreate);
  if (!out || !prop || !size || flags || !page_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  int location = 0;
  if (const CUresult error = location_of(*prop, &location)) return error;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  PhysRef phys = d.store.create(location, size);
  if (!phys) return CUDA_ERROR_OUT_OF_MEMORY;
  phys->properties = *prop;
  phys->handle = d.next_handle++;
  phys->handle_refs = 1;
  *out = phys->handle;
  d.handles.emplace(phys->handle, std::move(phys));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease);
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const PhysRef phys = handle_named(handle);
  if (!phys) return CUDA_ERROR_INVALID_VALUE;
  if (--phys->handle_refs == 0) {
    d.handles.erase(handle);
    if (phys->mappings == 0) d.store.retire(*phys);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr va, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  ENTER(cuMemMap);
  if (!size || offset || flags || !page_aligned(va) || !page_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  PhysRef phys = handle_named(handle);
  if (!phys || size > phys->bytes) return CUDA_ERROR_INVALID_VALUE;
  const Reservation* reservation = d.addresses.reservation_at(va);
  if (!reservation || size > reservation->end() - va || d.addresses.overlaps(va, size)) return CUDA_ERROR_INVALID_VALUE;
  Region region;
  region.va = va;
  region.bytes = size;
  region.phys = std::move(phys);
  d.addresses.add(std::move(region));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr va, size_t size) {
  ENTER(cuMemUnmap);
  if (!size || !page_aligned(va) || !page_aligned(size) || va + size < va) return CUDA_ERROR_INVALID_VALUE;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const auto regions = mappings_exactly(va, size);
  if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (Region* region : regions) {
    d.oracle.taken_away(*region, "cuMemUnmap");
    d.addresses.remove(region->va);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr va, size_t size, const CUmemAccessDesc* desc, size_t count) {
  ENTER(cuMemSetAccess);
  if (!size || !desc || !count || !page_aligned(va) || !page_aligned(size) || va + size < va)
    return CUDA_ERROR_INVALID_VALUE;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const auto regions = mappings_exactly(va, size);
  if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    uint8_t access = kNoAccess;
    if (!access_flags(desc[i].flags, &access)) return CUDA_ERROR_INVALID_VALUE;
    for (const Region* region : regions)
      if (const CUresult error = check_access(*region, desc[i].location)) return error;
  }
  // Host access can be refused by the system, so it goes first, and back if it is refused midway.
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) continue;
    uint8_t access = kNoAccess;
    access_flags(desc[i].flags, &access);
    std::vector<std::pair<Region*, uint8_t>> changed;
    for (Region* region : regions) {
      const uint8_t before = region->host_access;
      if (!d.addresses.map_to_cpu(*region, access)) {
        for (const auto& [done, old] : changed) d.addresses.map_to_cpu(*done, old);
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      changed.emplace_back(region, before);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    uint8_t access = kNoAccess;
    access_flags(desc[i].flags, &access);
    for (Region* region : regions) {
      uint8_t& now = region->device_access[desc[i].location.id];
      if ((now & access) != now) d.oracle.taken_away(*region, "cuMemSetAccess", desc[i].location.id);
      now = access;
    }
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr va) {
  ENTER(cuMemGetAccess);
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  const Region* region = d.addresses.find(va);
  if (!region || region->kind != Region::Kind::mapping) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!valid_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
      *flags = region->device_access[location->id];
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      *flags = region->host_access;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags option) {
  ENTER(cuMemGetAllocationGranularity);
  if (!granularity || !prop) return CUDA_ERROR_INVALID_VALUE;
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  int location = 0;
  if (const CUresult error = location_of(*prop, &location)) return error;
  *granularity = driver().config.page_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  ENTER(cuMemGetAllocationPropertiesFromHandle);
  if (!prop) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const PhysRef phys = handle_named(handle);
  if (!phys) return CUDA_ERROR_INVALID_VALUE;
  *prop = phys->properties;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  ENTER(cuMemRetainAllocationHandle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  REFUSE_AFTER_STICKY();
  Driver& d = driver();
  const Lock lock(d.lock);
  const Region* region = d.addresses.find(reinterpret_cast<CUdeviceptr>(address));
  if (!region || region->kind != Region::Kind::mapping) return CUDA_ERROR_INVALID_VALUE;
  const PhysRef& phys = region->phys;
  if (phys->handle_refs++ == 0) d.handles.emplace(phys->handle, phys);
  *out = phys->handle;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                              unsigned long long) {
  ENTER(cuMemExportToShareableHandle);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
  ENTER(cuMemImportFromShareableHandle);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
