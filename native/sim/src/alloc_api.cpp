// Memory that is not made of handles: device allocations, pinned and registered host memory.
#include "capture.h"
#include "context.h"
#include "graph_memory.h"

using namespace memxsim;

namespace {

constexpr unsigned kHostAllocFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult allocate(CUdeviceptr* out, size_t bytes) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;
  PhysRef phys = d.store.create(context->device, bytes);
  if (!phys) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t va = d.addresses.take_device_va(bytes);
  if (!va) {
    d.store.retire(*phys);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Region region;
  region.va = va;
  region.bytes = bytes;
  region.kind = Region::Kind::device;
  region.phys = std::move(phys);
  region.context = context;
  for (int other = 0; other < kMaxDevices; ++other)
    region.device_access[other] = d.addresses.peer_access(context->device, other);
  region.device_access[context->device] = kReadWrite;
  d.addresses.add(std::move(region));
  *out = va;
  return CUDA_SUCCESS;
}

Region host_region(Context* context, PhysRef phys, void* data, size_t bytes, unsigned flags, Region::Kind kind) {
  Region region;
  region.va = reinterpret_cast<uint64_t>(data);
  region.bytes = bytes;
  region.kind = kind;
  region.phys = std::move(phys);
  region.context = context;
  region.host_flags = flags;
  region.host_access = kReadWrite;
  region.device_access.fill(kReadWrite);
  return region;
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
  if (!out || !bytes || (flags & ~kHostAllocFlags)) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;
  PhysRef phys = d.store.create_pinned(bytes);
  if (!phys) return CUDA_ERROR_OUT_OF_MEMORY;
  char* data = phys->data;
  d.addresses.add(host_region(context, std::move(phys), data, bytes, flags, Region::Kind::pinned));
  *out = data;
  return CUDA_SUCCESS;
}

// The allocation is taken from every later call at once, then waited for: two frees of one address cannot both pass.
CUresult free_after_wait(uint64_t va, Region::Kind kind) {
  Driver& d = driver();
  Lock lock(d.lock);
  Context* current = current_context();
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (current->error) return current->error;
  Region* region = d.addresses.starting_at(va);
  if (!region || region->kind != kind || region->freed_in_order) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;
  region->freed_in_order = true;
  Context& owner = *region->context;
  if (owner.alive) host_wait_context(lock, owner);
  d.oracle.taken_away(*region, kind == Region::Kind::device ? "cuMemFree" : "cuMemFreeHost");
  d.addresses.remove(va);
  d.addresses.give_device_va(va);
  return current->error;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  ENTER(cuMemAlloc);
  return allocate(out, bytes);
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned int element) {
  ENTER(cuMemAllocPitch);
  if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  const size_t row = round_up(width, 512);
  if (row < width || row > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate(out, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr va) {
  ENTER(cuMemFree);
  if (!va) return CUDA_SUCCESS;
  {
    Driver& d = driver();
    const Lock lock(d.lock);
    Region* region = d.addresses.starting_at(va);
    if (region && region->graph_memory) return free_graph_memory_now(*region);
    if (region && region->kind == Region::Kind::pool && !region->freed_in_order) {
      // A pool's memory is freed without waiting for anything.
      d.oracle.taken_away(*region, "cuMemFree");
      leave_pool(*region);
      d.addresses.remove(va);
      d.addresses.give_device_va(va);
      return CUDA_SUCCESS;
    }
  }
  return free_after_wait(va, Region::Kind::device);
}

CUresult CUDAAPI cuMemAllocHost(void** out, size_t bytes) {
  ENTER(cuMemAllocHost);
  return allocate_host(out, bytes, 0);
}

CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  ENTER(cuMemHostAlloc);
  return allocate_host(out, bytes, flags);
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
  ENTER(cuMemFreeHost);
  return free_after_wait(reinterpret_cast<uint64_t>(address), Region::Kind::pinned);
}

CUresult CUDAAPI cuMemHostRegister(void* address, size_t bytes, unsigned int flags) {
  ENTER(cuMemHostRegister);
  if (!address || !bytes || (flags & ~kRegisterFlags)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_NOT_SUPPORTED;
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  const auto va = reinterpret_cast<uint64_t>(address);
  if (va + bytes < va) return CUDA_ERROR_INVALID_VALUE;
  if (d.addresses.reservation_at(va)) return CUDA_ERROR_INVALID_VALUE;
  if (d.addresses.overlaps(va, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  PhysRef phys = d.store.adopt(static_cast<char*>(address), bytes);
  if (!phys) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region = host_region(context, std::move(phys), address, bytes, flags, Region::Kind::registered);
  if (flags & CU_MEMHOSTREGISTER_READ_ONLY) region.device_access.fill(kRead);
  d.addresses.add(std::move(region));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* address) {
  ENTER(cuMemHostUnregister);
  const CUresult result = free_after_wait(reinterpret_cast<uint64_t>(address), Region::Kind::registered);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : result;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* out, void* address, unsigned int flags) {
  ENTER(cuMemHostGetDevicePointer);
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Region* region = driver().addresses.find(reinterpret_cast<uint64_t>(address));
  if (!region || (region->kind != Region::Kind::pinned && region->kind != Region::Kind::registered))
    return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* address) {
  ENTER(cuMemHostGetFlags);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Region* region = driver().addresses.find(reinterpret_cast<uint64_t>(address));
  if (!region || region->kind != Region::Kind::pinned) return CUDA_ERROR_INVALID_VALUE;
  *flags = region->host_flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo(size_t* free, size_t* total) {
  ENTER(cuMemGetInfo);
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  *total = d.store.limit(context->device);
  *free = *total - d.store.used(context->device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr*, size_t, unsigned int) {
  ENTER(cuMemAllocManaged);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
