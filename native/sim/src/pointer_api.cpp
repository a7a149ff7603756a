// Questions about addresses.
#include <cstring>

#include "context.h"

using namespace memxsim;

namespace {

bool on_host(const Region& region) { return region.phys->on_host(); }

// What an address belongs to as a whole: a mapping's reservation, else the allocation.
Reservation range_of(const Region& region) {
  const Reservation* reservation =
      region.kind == Region::Kind::mapping ? driver().addresses.reservation_at(region.va) : nullptr;
  return reservation ? *reservation : Reservation{region.va, region.bytes};
}

// Writes one attribute of a known address; `region` is not null.
CUresult attribute(void* out, CUpointer_attribute name, const Region& region, CUdeviceptr va) {
  const auto set = [out](auto value) {
    std::memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (region.context) return set(handle_of(region.context));
      return set(CUcontext{nullptr});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return set(static_cast<unsigned>(on_host(region) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return set(va);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (region.host_access == kNoAccess) return CUDA_ERROR_INVALID_VALUE;
      return set(reinterpret_cast<void*>(va));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return set(0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return set(static_cast<unsigned long long>(region.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return set(0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      if (!on_host(region)) return set(region.phys->location);
      return set(region.context ? region.context->device : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return set(0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return set(static_cast<CUdeviceptr>(range_of(region).va));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return set(static_cast<size_t>(range_of(region).bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED: return set(1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return set(static_cast<unsigned long long>(region.phys->properties.requestedHandleTypes));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return set(0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      const Context* context = current_context();
      return set(static_cast<unsigned>(region.device_access[context ? context->device : 0]));
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return set(static_cast<CUmemoryPool>(region.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return set(static_cast<size_t>(region.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return set(static_cast<CUdeviceptr>(region.va));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return set(static_cast<unsigned long long>(region.buffer_id));
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// What the plural form writes for an address that the driver does not know.
void clear_attribute(void* out, CUpointer_attribute name) {
  size_t bytes = sizeof(unsigned);
  switch (name) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      const int none = -2;
      std::memcpy(out, &none, sizeof none);
      return;
    }
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      bytes = 8;
      break;
    default:
      break;
  }
  std::memset(out, 0, bytes);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* out, CUpointer_attribute name, CUdeviceptr va) {
  ENTER(cuPointerGetAttribute);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (const Region* region = driver().addresses.find(va)) return attribute(out, name, *region, va);
  if (name == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || name == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
      name == CU_POINTER_ATTRIBUTE_MAPPED) {
    if (const Reservation* reservation = driver().addresses.reservation_at(va)) {
      if (name == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *static_cast<CUdeviceptr*>(out) = reservation->va;
      if (name == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *static_cast<size_t*>(out) = reservation->bytes;
      if (name == CU_POINTER_ATTRIBUTE_MAPPED) *static_cast<unsigned*>(out) = 0;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* names, void** out, CUdeviceptr va) {
  ENTER(cuPointerGetAttributes);
  if (!names || !out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Region* region = driver().addresses.find(va);
  for (unsigned i = 0; i < count; ++i) {
    if (region && attribute(out[i], names[i], *region, va) == CUDA_SUCCESS) continue;
    clear_attribute(out[i], names[i]);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void*, CUpointer_attribute name, CUdeviceptr va) {
  ENTER(cuPointerSetAttribute);
  const Lock lock(driver().lock);
  if (name != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !driver().addresses.find(va)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr va) {
  ENTER(cuMemGetAddressRange);
  const Lock lock(driver().lock);
  const Region* region = driver().addresses.find(va);
  if (!region) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = region->va;
  if (size) *size = region->bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
