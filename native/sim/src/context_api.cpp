// Contexts as programs see them.
#include "context.h"
#include "younger.h"

using namespace memxsim;

namespace {

bool valid_device(CUdevice device) { return device >= 0 && device < static_cast<int>(driver().config.devices); }

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  Context* context = make_context(device, false, flags);
  if (!push_current(context)) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  Context* context = primary_context(device);
  if (!context || !context->alive) context = make_context(device, true, context ? context->flags : 0);
  ++context->retains;
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease);
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(driver().lock);
  Context* context = primary_context(device);
  if (!context || !context->alive || context->retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->retains == 0) end_context(lock, *context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset);
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(driver().lock);
  Context* context = primary_context(device);
  if (context && context->alive) end_context(lock, *context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  ENTER(cuDevicePrimaryCtxGetState);
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  const Context* context = primary_context(device);
  *flags = context ? context->flags : 0;
  *active = context && context->alive;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  ENTER(cuDevicePrimaryCtxSetFlags);
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  primary_slot(device).flags = flags;
  return CUDA_SUCCESS;
}

MEMXSIM_API CUresult CUDAAPI cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate);
  return create(out, flags, device);
}

MEMXSIM_API CUresult CUDAAPI cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate);
  return create(out, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate);
  return create(out, flags, device);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext handle) {
  ENTER(cuCtxDestroy);
  Lock lock(driver().lock);
  Context* context = context_from(handle);
  if (!context || !context->alive || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  end_context(lock, *context);
  if (current_context() == context) pop_current();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle) {
  ENTER(cuCtxPushCurrent);
  const Lock lock(driver().lock);
  Context* context = context_from(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return push_current(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* out) {
  ENTER(cuCtxPopCurrent);
  Context* context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  pop_current();
  if (out) *out = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
  ENTER(cuCtxSetCurrent);
  const Lock lock(driver().lock);
  Context* context = context_from(handle);
  if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
  set_current(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* out) {
  ENTER(cuCtxGetCurrent);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(current_context());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* out) {
  ENTER(cuCtxGetDevice);
  const Context* context = current_context();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->device;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  ENTER(cuCtxGetDevice);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Context* context = handle ? context_from(handle) : current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->device;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  Lock lock(driver().lock);
  USE_CONTEXT(context);
  if (const CUresult forbidden = forbid_in_capture(*context)) return forbidden;
  host_wait_context(lock, *context);
  return context->error;
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
  ENTER(cuCtxSynchronize);
  Lock lock(driver().lock);
  Context* context = handle ? context_from(handle) : current_context();
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->error) return context->error;
  if (const CUresult forbidden = forbid_in_capture(*context)) return forbidden;
  host_wait_context(lock, *context);
  return context->error;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  ENTER(cuCtxGetFlags);
  const Context* context = current_context();
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  ENTER(cuCtxSetFlags);
  const Lock lock(driver().lock);
  Context* context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
  ENTER(cuCtxGetId);
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Context* context = handle ? context_from(handle) : current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  ENTER(cuCtxGetApiVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (handle ? !context_from(handle) : !current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit limit) {
  ENTER(cuCtxGetLimit);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE: *value = 1024; return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE: *value = 7 << 20; return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE: *value = 8 << 20; return CUDA_SUCCESS;
    default: return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit, size_t) {
  ENTER(cuCtxSetLimit);
  return current_context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
  ENTER(cuCtxGetCacheConfig);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache) {
  ENTER(cuCtxSetCacheConfig);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  ENTER(cuDeviceCanAccessPeer);
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device) || !valid_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  ENTER(cuCtxEnablePeerAccess);
  const Lock lock(driver().lock);
  USE_CONTEXT(context);
  const Context* other = context_from(peer);
  if (!other || !other->alive || other == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (other->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const uint64_t bit = uint64_t{1} << other->device;
  if (context->peers & bit) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  context->peers |= bit;
  driver().addresses.grant_peer(other->device, context->device, kReadWrite);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  ENTER(cuCtxDisablePeerAccess);
  const Lock lock(driver().lock);
  USE_CONTEXT(context);
  const Context* other = context_from(peer);
  if (!other) return CUDA_ERROR_INVALID_CONTEXT;
  const uint64_t bit = uint64_t{1} << other->device;
  if (!(context->peers & bit)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  drop_peer(*context, other->device, "cuCtxDisablePeerAccess");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute name, CUdevice a, CUdevice b) {
  ENTER(cuDeviceGetP2PAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(a) || !valid_device(b) || a == b) return CUDA_ERROR_INVALID_DEVICE;
  switch (static_cast<int>(name)) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = 1; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case younger::kOnlyPartialAtomics: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // extern "C"
