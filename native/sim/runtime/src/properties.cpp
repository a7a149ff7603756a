// What a device is, in the runtime's words: all of it asked of the driver.
#include <cstring>

#include "runtime.h"

using namespace memxrt;

namespace {

struct Source {
  CUdevice device;
  int operator()(CUdevice_attribute name) const {
    int value = 0;
    cuDeviceGetAttribute(&value, name, device);
    return value;
  }
  size_t bytes(CUdevice_attribute name) const { return static_cast<size_t>((*this)(name)); }
};

void fill(cudaDeviceProp& p, const Source& of) {
  p.sharedMemPerBlock = of.bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p.sharedMemPerBlockOptin = of.bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p.sharedMemPerMultiprocessor = of.bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p.reservedSharedMemPerBlock = of.bytes(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  p.regsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p.regsPerMultiprocessor = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p.warpSize = of(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.memPitch = of.bytes(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  p.maxThreadsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  p.maxThreadsPerMultiProcessor = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p.maxBlocksPerMultiProcessor = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  for (int axis = 0; axis < 3; ++axis) {
    p.maxThreadsDim[axis] = of(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis));
    p.maxGridSize[axis] = of(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis));
  }
  p.totalConstMem = of.bytes(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  p.major = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p.minor = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p.multiProcessorCount = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.textureAlignment = of.bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  p.texturePitchAlignment = of.bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
  p.surfaceAlignment = of.bytes(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT);
  p.integrated = of(CU_DEVICE_ATTRIBUTE_INTEGRATED);
  p.canMapHostMemory = of(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  p.concurrentKernels = of(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  p.ECCEnabled = of(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
  p.pciBusID = of(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  p.pciDeviceID = of(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  p.pciDomainID = of(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  p.asyncEngineCount = of(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  p.unifiedAddressing = of(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  p.memoryBusWidth = of(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  p.l2CacheSize = of(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p.persistingL2CacheMaxSize = of(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
  p.accessPolicyMaxWindowSize = of(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
  p.streamPrioritiesSupported = of(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  p.globalL1CacheSupported = of(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED);
  p.localL1CacheSupported = of(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED);
  p.managedMemory = of(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  p.concurrentManagedAccess = of(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  p.pageableMemoryAccess = of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
  p.isMultiGpuBoard = of(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD);
  p.multiGpuBoardGroupID = of(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID);
  p.hostNativeAtomicSupported = of(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
  p.computePreemptionSupported = of(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
  p.canUseHostPointerForRegisteredMem = of(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  p.cooperativeLaunch = of(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  p.hostRegisterSupported = of(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  p.hostRegisterReadOnlySupported = of(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
  p.memoryPoolsSupported = of(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  p.memoryPoolSupportedHandleTypes = static_cast<unsigned>(of(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES));
  p.clusterLaunch = of(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
  p.deviceNumaConfig = of(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG);
  p.deviceNumaId = of(CU_DEVICE_ATTRIBUTE_NUMA_ID);
  p.hostNumaId = of(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  if (!properties) return done(cudaErrorInvalidValue);
  USE_DRIVER();
  if (!is_device(device)) return done(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  cuDeviceGetName(properties->name, sizeof properties->name, device);
  CUuuid uuid{};
  cuDeviceGetUuid(&uuid, device);
  std::memcpy(properties->uuid.bytes, uuid.bytes, sizeof uuid.bytes);
  cuDeviceTotalMem(&properties->totalGlobalMem, device);
  fill(*properties, Source{device});
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr name, int device) {
  USE_DRIVER();
  return done(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(name), device));
}

}  // extern "C"
