// Allocations of device and host memory, pools, and what an address is.
#include "runtime.h"
#include "values.h"

using namespace memxrt;

namespace {

CUmemoryPool driver_pool(cudaMemPool_t pool) { return reinterpret_cast<CUmemoryPool>(pool); }

// Nothing is a valid size here, though not for the driver: the answer is a null pointer.
template <typename Allocate>
cudaError_t allocate(void** out, size_t bytes, Allocate&& with) {
  if (!out) return done(cudaErrorInvalidValue);
  USE_CONTEXT();
  *out = nullptr;
  if (!bytes) return cudaSuccess;
  const CUresult code = with();
  if (code == CUDA_SUCCESS) memory_given(address(*out), bytes);
  return done(code);
}

// What the memory held is forgotten first: once the driver has it, another thread may get the address.
template <class Free>
cudaError_t release(void* pointer, Free&& with) {
  memory_taken(address(pointer));
  return done(with());
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** out, size_t bytes) {
  return allocate(out, bytes, [&] { return cuMemAlloc(reinterpret_cast<CUdeviceptr*>(out), bytes); });
}

cudaError_t CUDARTAPI cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return allocate(out, width * height,
                  [&] { return cuMemAllocPitch(reinterpret_cast<CUdeviceptr*>(out), pitch, width, height, 4); });
}

cudaError_t CUDARTAPI cudaFree(void* pointer) {
  USE_CONTEXT();
  return release(pointer, [&] { return cuMemFree(address(pointer)); });
}

cudaError_t CUDARTAPI cudaHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate(out, bytes, [&] { return cuMemHostAlloc(out, bytes, flags); });
}

cudaError_t CUDARTAPI cudaMallocHost(void** out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

cudaError_t CUDARTAPI cudaFreeHost(void* pointer) {
  USE_CONTEXT();
  return pointer ? release(pointer, [&] { return cuMemFreeHost(pointer); }) : cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  USE_CONTEXT();
  return done(cuMemHostRegister(pointer, bytes, flags));
}

cudaError_t CUDARTAPI cudaHostUnregister(void* pointer) {
  USE_CONTEXT();
  return done(cuMemHostUnregister(pointer));
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** out, void* pointer, unsigned int flags) {
  USE_CONTEXT();
  return done(cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(out), pointer, flags));
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int* flags, void* pointer) {
  USE_CONTEXT();
  return done(cuMemHostGetFlags(flags, pointer));
}

cudaError_t CUDARTAPI cudaMallocManaged(void** out, size_t, unsigned int) {
  USE_CONTEXT();
  return done(out ? cudaErrorNotSupported : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  USE_CONTEXT();
  return done(cuMemGetInfo(free, total));
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes* out, const void* pointer) {
  if (!out) return done(cudaErrorInvalidValue);
  USE_DRIVER();
  unsigned type = 0, managed = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
  *out = {};
  void* values[] = {&type, &out->device, &out->devicePointer, &out->hostPointer, &managed};
  const CUresult code = cuPointerGetAttributes(sizeof values / sizeof *values, names, values, address(pointer));
  if (managed)
    out->type = cudaMemoryTypeManaged;
  else if (type == CU_MEMORYTYPE_HOST)
    out->type = cudaMemoryTypeHost;
  else if (type == CU_MEMORYTYPE_DEVICE)
    out->type = cudaMemoryTypeDevice;
  else
    out->hostPointer = const_cast<void*>(pointer);  // pageable memory
  return done(code);
}

cudaError_t CUDARTAPI cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return allocate(out, bytes, [&] { return cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(out), bytes, stream); });
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return allocate(out, bytes, [&] {
    return cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(out), bytes, driver_pool(pool), stream);
  });
}

cudaError_t CUDARTAPI cudaFreeAsync(void* pointer, cudaStream_t stream) {
  USE_CONTEXT();
  return release(pointer, [&] { return cuMemFreeAsync(address(pointer), stream); });
}

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  USE_DRIVER();
  return done(cuDeviceGetDefaultMemPool(reinterpret_cast<CUmemoryPool*>(pool), device));
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  USE_DRIVER();
  return done(cuDeviceGetMemPool(reinterpret_cast<CUmemoryPool*>(pool), device));
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  USE_DRIVER();
  return done(cuDeviceSetMemPool(device, driver_pool(pool)));
}

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, const struct cudaMemPoolProps* properties) {
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  USE_DRIVER();
  return done(cuMemPoolCreate(reinterpret_cast<CUmemoryPool*>(pool),
                              reinterpret_cast<const CUmemPoolProps*>(properties)));
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) { return done(cuMemPoolDestroy(driver_pool(pool))); }

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  return done(cuMemPoolTrimTo(driver_pool(pool), bytes));
}

cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void* value) {
  return done(cuMemPoolGetAttribute(driver_pool(pool), static_cast<CUmemPool_attribute>(name), value));
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void* value) {
  return done(cuMemPoolSetAttribute(driver_pool(pool), static_cast<CUmemPool_attribute>(name), value));
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc* list, size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return done(cuMemPoolSetAccess(driver_pool(pool), reinterpret_cast<const CUmemAccessDesc*>(list), count));
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(enum cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                           struct cudaMemLocation* location) {
  return done(cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), driver_pool(pool),
                                 reinterpret_cast<CUmemLocation*>(location)));
}

}  // extern "C"
