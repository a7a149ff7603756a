// Devices: choosing one, waiting for it, resetting it, peers and limits.
#include "runtime.h"

using namespace memxrt;

namespace {

cudaError_t choose(int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  CUcontext context = nullptr;
  if (const cudaError_t code = retain_primary(device, &context)) return code;
  if (const CUresult code = cuCtxSetCurrent(context)) return to_runtime(code);
  t_state.device = device;
  return cudaSuccess;
}

cudaError_t current_device(int* device) {
  if (cuCtxGetDevice(device)) *device = t_state.device;
  return cudaSuccess;
}

cudaError_t with_peer(int peer, CUresult (*change)(CUcontext)) {
  if (!is_device(peer)) return cudaErrorInvalidDevice;
  CUcontext context = nullptr;
  if (const cudaError_t code = retain_primary(peer, &context)) return code;
  const CUresult code = change(context);
  return code == CUDA_ERROR_INVALID_CONTEXT ? cudaErrorInvalidDevice : to_runtime(code);  // a device and itself
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  USE_DRIVER();
  return done(cuDeviceGetCount(count));
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  USE_DRIVER();
  return done(choose(device));
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int, unsigned int) {
  USE_DRIVER();
  if (!is_device(device)) return done(cudaErrorInvalidDevice);
  CUcontext context = nullptr;
  return done(retain_primary(device, &context));
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  if (!device) return done(cudaErrorInvalidValue);
  USE_DRIVER();
  return done(current_device(device));
}

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags) {
  USE_DRIVER();
  return done(cuDevicePrimaryCtxSetFlags(t_state.device, flags));
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int* flags) {
  int active = 0;
  USE_DRIVER();
  return done(cuDevicePrimaryCtxGetState(t_state.device, flags, &active));
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  USE_CONTEXT();
  return done(cuCtxSynchronize());
}

cudaError_t CUDARTAPI cudaDeviceReset(void) {
  USE_DRIVER();
  int device = 0;
  current_device(&device);
  forget_primary(device);
  t_state.last = cudaSuccess;
  return done(cuDevicePrimaryCtxReset(device));
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  USE_CONTEXT();
  return done(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t* value, enum cudaLimit limit) {
  USE_CONTEXT();
  return done(cuCtxGetLimit(value, static_cast<CUlimit>(limit)));
}

cudaError_t CUDARTAPI cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
  USE_CONTEXT();
  return done(cuCtxSetLimit(static_cast<CUlimit>(limit), value));
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int length, int device) {
  USE_DRIVER();
  return done(cuDeviceGetPCIBusId(text, length, device));
}

cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int* device, const char* text) {
  USE_DRIVER();
  return done(cuDeviceGetByPCIBusId(device, text));
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  USE_DRIVER();
  return done(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  USE_CONTEXT();
  if (flags) return done(cudaErrorInvalidValue);
  return done(with_peer(peer, [](CUcontext context) { return cuCtxEnablePeerAccess(context, 0); }));
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer) {
  USE_CONTEXT();
  return done(with_peer(peer, [](CUcontext context) { return cuCtxDisablePeerAccess(context); }));
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int* value, enum cudaDeviceP2PAttr name, int device, int peer) {
  USE_DRIVER();
  return done(cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(name), device, peer));
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) { return done(cuDriverGetVersion(version)); }

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  if (!version) return done(cudaErrorInvalidValue);
  *version = 13000;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaProfilerStop(void) { return cudaSuccess; }

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                                       unsigned long long flags,
                                                       enum cudaDriverEntryPointQueryResult* status) {
  USE_DRIVER();
  CUdriverProcAddressQueryResult found{};
  const CUresult code = cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
  if (status) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  if (code == CUDA_SUCCESS && found != CU_GET_PROC_ADDRESS_SUCCESS && !status) return done(cudaErrorSymbolNotFound);
  return done(code);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                              enum cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 13000, flags, status);
}

}  // extern "C"
