// Stream-ordered allocation. Pools keep nothing: what is freed goes back when the free is reached in its stream.
#include <algorithm>
#include <unordered_set>

#include "capture.h"
#include "context.h"
#include "graph_memory.h"
#include "works.h"
#include "younger.h"

using namespace memxsim;

namespace {

struct Pool {
  int location = 0;
  CUmemLocation shown{};
  uint64_t threshold = 0;
  uint64_t used = 0, used_high = 0;
  int reuse[3] = {1, 1, 1};  // accepted and remembered; memory is never reused inside a pool here
  uint8_t access[kMaxDevices] = {};
};

struct Pools {
  std::unordered_set<const void*> live;
  Pool* standard[kMaxDevices + 1] = {};
  Pool* current[kMaxDevices + 1] = {};
};

Pools& pools() {
  static auto* instance = new Pools;
  return *instance;
}

Pool* pool_of(CUmemoryPool handle) { return pools().live.count(handle) ? reinterpret_cast<Pool*>(handle) : nullptr; }
CUmemoryPool handle_of(Pool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }
bool valid_device(int device) { return device >= 0 && device < static_cast<int>(driver().config.devices); }

Pool* make_pool(int location, const CUmemLocation& shown) {
  auto* pool = new Pool;
  pool->location = location;
  pool->shown = shown;
  if (location == kHost)
    std::fill(std::begin(pool->access), std::end(pool->access), uint8_t{kReadWrite});
  else
    pool->access[location] = kReadWrite;
  pools().live.insert(pool);
  return pool;
}

CUresult location_of(const CUmemLocation& location, int* out) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!valid_device(location.id)) return CUDA_ERROR_INVALID_DEVICE;
      *out = location.id;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      *out = kHost;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Pool* standard_pool(int location) {
  Pool*& pool = pools().standard[location];
  if (!pool) {
    CUmemLocation shown{};
    shown.type = location == kHost ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    shown.id = location == kHost ? 0 : location;
    pool = make_pool(location, shown);
  }
  return pool;
}

Pool* current_pool(int location) {
  Pool*& pool = pools().current[location];
  if (!pool) pool = standard_pool(location);
  return pool;
}

struct PoolAllocate : Work {
  PoolAllocate(uint64_t va, uint64_t bytes) : Work("cuMemAllocAsync") { operands.push_back({va, bytes, AccessKind::write}); }
  bool prepare(Execution&) const override { return true; }
};

struct PoolFree : Work {
  PoolFree(uint64_t va, uint64_t bytes) : Work("cuMemFreeAsync") { operands.push_back({va, bytes, AccessKind::write}); }
  bool prepare(Execution&) const override { return true; }
  void completed(Queue&) const override {
    Driver& d = driver();
    const Region* region = d.addresses.starting_at(operands[0].va);
    if (!region || !region->freed_in_order) return;
    leave_pool(*region);
    d.addresses.remove(operands[0].va);
    d.addresses.give_device_va(operands[0].va);
  }
};

// A node of the graph, to which the memory belongs: the pool only says what it is like.
CUresult allocate_in_capture(CUdeviceptr* out, size_t bytes, const Pool& pool, Queue& queue) {
  if (queue.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (pool.location == kHost) return CUDA_ERROR_NOT_SUPPORTED;
  std::array<uint8_t, kMaxDevices> access{};
  std::copy(std::begin(pool.access), std::end(pool.access), access.begin());
  const GraphAllocationRef allocation =
      make_graph_allocation(*queue.context, queue.capture->graph->id, bytes, pool.location, access);
  if (!allocation) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation->properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation->properties.location = pool.shown;
  for (int device = 0; device < kMaxDevices; ++device)
    if (device != pool.location && pool.access[device])
      allocation->access_descs.push_back(
          {{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, static_cast<CUmemAccess_flags>(pool.access[device])});
  *out = allocation->va;
  return add_to_capture(queue, std::make_shared<GraphAllocate>(allocation));
}

CUresult free_in_capture(CUdeviceptr va, Queue& queue) {
  if (queue.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const uint64_t graph = queue.capture->graph->id;
  GraphAllocationRef allocation = allocation_to_free(va, graph);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  allocation->freed_by.push_back(graph);
  return add_to_capture(queue, std::make_shared<GraphFree>(std::move(allocation)));
}

// The pool of the queue's device if `pool` is null.
CUresult allocate(CUdeviceptr* out, size_t bytes, CUmemoryPool handle, CUstream stream) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  Lock lock(d.lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  Context* context = queue->context;
  if (context->error) return context->error;
  Pool* pool = handle ? pool_of(handle) : current_pool(context->device);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (queue->capture) return allocate_in_capture(out, bytes, *pool, *queue);
  const auto create = [&] {
    return pool->location == kHost ? d.store.create_pinned(bytes) : d.store.create(pool->location, bytes);
  };
  PhysRef phys = create();
  if (!phys) {
    // What was freed in order but not reached yet can still be had.
    host_wait_context(lock, *context);
    if (context->error) return context->error;
    queue = queue_of(stream, &error);
    if (!queue) return error;
    phys = create();
    if (!phys) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Region region;
  region.va = pool->location == kHost ? reinterpret_cast<uint64_t>(phys->data) : d.addresses.take_device_va(bytes);
  if (!region.va) {
    d.store.retire(*phys);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  region.bytes = bytes;
  region.kind = Region::Kind::pool;
  region.phys = std::move(phys);
  region.context = context;
  region.pool = handle_of(pool);
  region.host_access = pool->location == kHost ? kReadWrite : kNoAccess;
  std::copy(std::begin(pool->access), std::end(pool->access), region.device_access.begin());
  *out = region.va;
  d.addresses.add(std::move(region));
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  return submit_locked(*queue, std::make_shared<PoolAllocate>(*out, bytes));
}

}  // namespace

namespace memxsim {

void leave_pool(const Region& region) {
  if (Pool* pool = pool_of(static_cast<CUmemoryPool>(region.pool))) pool->used -= region.bytes;
}

}  // namespace memxsim

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  ENTER(cuMemAllocAsync);
  return allocate(out, bytes, nullptr, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  ENTER(cuMemAllocFromPoolAsync);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  return allocate(out, bytes, pool, stream);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr va, CUstream stream) {
  ENTER(cuMemFreeAsync);
  Driver& d = driver();
  const Lock lock(d.lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (queue->context->error) return queue->context->error;
  if (queue->capture) return free_in_capture(va, *queue);
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  Region* region = d.addresses.starting_at(va);
  if (region && region->graph_memory) return free_graph_memory(*region, *queue);
  if (!region || region->freed_in_order || (region->kind != Region::Kind::pool && region->kind != Region::Kind::device))
    return CUDA_ERROR_INVALID_VALUE;
  const Point point = enqueue(*queue, std::make_shared<PoolFree>(va, region->bytes));
  region->freed_in_order = true;
  region->over = queued_free(point, va, region->bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  *out = handle_of(standard_pool(device));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  ENTER(cuDeviceGetMemPool);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  *out = handle_of(current_pool(device));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  ENTER(cuDeviceSetMemPool);
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  Pool* pool = pool_of(handle);
  if (!pool || pool->location != device) return CUDA_ERROR_INVALID_VALUE;
  pools().current[device] = pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  ENTER(cuMemGetDefaultMemPool);
  if (!out || !location || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  int where = 0;
  if (const CUresult error = location_of(*location, &where)) return error;
  const Lock lock(driver().lock);
  *out = handle_of(standard_pool(where));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  ENTER(cuMemGetMemPool);
  if (!out || !location || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  int where = 0;
  if (const CUresult error = location_of(*location, &where)) return error;
  const Lock lock(driver().lock);
  *out = handle_of(current_pool(where));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  ENTER(cuMemSetMemPool);
  if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  int where = 0;
  if (const CUresult error = location_of(*location, &where)) return error;
  const Lock lock(driver().lock);
  Pool* pool = pool_of(handle);
  if (!pool || pool->location != where) return CUDA_ERROR_INVALID_VALUE;
  pools().current[where] = pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  ENTER(cuMemPoolCreate);
  if (!out || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  int where = 0;
  if (const CUresult error = location_of(properties->location, &where)) return error;
  const Lock lock(driver().lock);
  *out = handle_of(make_pool(where, properties->location));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  ENTER(cuMemPoolDestroy);
  const Lock lock(driver().lock);
  Pool* pool = pool_of(handle);
  if (!pool || pool == pools().standard[pool->location]) return CUDA_ERROR_INVALID_VALUE;
  if (pools().current[pool->location] == pool) pools().current[pool->location] = nullptr;
  pools().live.erase(pool);
  delete pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  ENTER(cuMemPoolTrimTo);
  const Lock lock(driver().lock);
  return pool_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute name, void* value) {
  ENTER(cuMemPoolGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  auto& wide = *static_cast<cuuint64_t*>(value);
  auto& narrow = *static_cast<int*>(value);
  switch (static_cast<int>(name)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: narrow = pool->reuse[0]; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: narrow = pool->reuse[1]; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: narrow = pool->reuse[2]; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: wide = pool->threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: wide = pool->used; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: wide = pool->used_high; break;
    case younger::kAllocationType: narrow = CU_MEM_ALLOCATION_TYPE_PINNED; break;
    case younger::kExportHandleTypes: narrow = CU_MEM_HANDLE_TYPE_NONE; break;
    case younger::kLocationId: narrow = pool->shown.id; break;
    case younger::kLocationType: narrow = pool->shown.type; break;
    case younger::kMaxPoolSize: wide = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute name, void* value) {
  ENTER(cuMemPoolSetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  switch (name) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: pool->reuse[0] = *static_cast<int*>(value); break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: pool->reuse[1] = *static_cast<int*>(value); break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->reuse[2] = *static_cast<int*>(value); break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->threshold = *static_cast<cuuint64_t*>(value); break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value)) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  ENTER(cuMemPoolSetAccess);
  if (count && !map) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    if (!valid_device(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].location.id == pool->location && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_DEVICE;
    pool->access[map[i].location.id] = static_cast<uint8_t>(map[i].flags);
  }
  d.addresses.grant_pool(handle, pool->access);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  ENTER(cuMemPoolGetAccess);
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    if (!valid_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = static_cast<CUmemAccess_flags>(pool->access[location->id]);
  } else {
    *flags = pool->location == kHost ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
