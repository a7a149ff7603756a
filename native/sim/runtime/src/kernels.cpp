// Launching kernels. The driver counts them by name and keeps their place in the stream; they do nothing.
#include <algorithm>
#include <vector>

#include "registry.h"
#include "values.h"

using namespace memxrt;

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// Of launches in the triple-bracket notation, between their two halves.
thread_local std::vector<Configuration> t_pushed;

bool within(const dim3& size, unsigned x, unsigned y, unsigned z) {
  return size.x && size.y && size.z && size.x <= x && size.y <= y && size.z <= z;
}

cudaError_t launch(CUkernel kernel, const Configuration& c, void** arguments) {
  const size_t threads = size_t{c.block.x} * c.block.y * c.block.z;
  if (!within(c.grid, 2147483647, 65535, 65535) || !within(c.block, 1024, 1024, 64) || threads > 1024)
    return cudaErrorInvalidConfiguration;
  if (c.shared_bytes > static_cast<size_t>(dynamic_shared_limit(kernel))) return cudaErrorInvalidValue;
  kernel_queued();
  return to_runtime(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), c.grid.x, c.grid.y, c.grid.z, c.block.x,
                                   c.block.y, c.block.z, static_cast<unsigned>(c.shared_bytes), c.stream, arguments,
                                   nullptr));
}

cudaError_t launch_host(const void* host, const Configuration& c, void** arguments) {
  USE_CONTEXT();
  CUkernel kernel = nullptr;
  if (const cudaError_t code = find_kernel(host, &kernel)) return done(code);
  return done(launch(kernel, c, arguments));
}

cudaError_t set_attribute(CUkernel kernel, cudaFuncAttribute name, int value) {
  if (name == cudaFuncAttributeMaxDynamicSharedMemorySize) return set_dynamic_shared_limit(kernel, value);
  return name > 0 && name < cudaFuncAttributeMax ? cudaSuccess : cudaErrorInvalidValue;
}

int attribute(CUkernel kernel, CUfunction_attribute name) {
  int value = 0;
  cuFuncGetAttribute(&value, name, reinterpret_cast<CUfunction>(kernel));
  return value;
}

int compute_capability() {
  CUdevice device = 0;
  int major = 0, minor = 0;
  if (cuCtxGetDevice(&device)) return 0;
  cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  return 10 * major + minor;
}

cudaError_t occupancy(int* blocks, const void* host, int block_size, size_t shared_bytes) {
  if (!blocks || block_size <= 0) return cudaErrorInvalidValue;
  CUkernel kernel = nullptr;
  CUdevice device = 0;
  int threads = 0, shared = 0, reserved = 0, most = 0;
  if (const cudaError_t code = find_kernel(host, &kernel)) return code;
  if (const CUresult code = cuCtxGetDevice(&device)) return to_runtime(code);
  cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  cuDeviceGetAttribute(&reserved, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device);
  cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device);
  const int warps = (block_size + 31) / 32;
  const auto by_shared = static_cast<size_t>(shared) / (shared_bytes + static_cast<size_t>(reserved));
  *blocks = block_size > 1024 ? 0 : std::min({most, threads / 32 / warps, static_cast<int>(by_shared)});
  return cudaSuccess;
}

}  // namespace

extern "C" {

void** CUDARTAPI __cudaRegisterFatBinary(void* wrapper) { return reinterpret_cast<void**>(add_image(wrapper)); }
void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}
void CUDARTAPI __cudaUnregisterFatBinary(void** image) { remove_image(reinterpret_cast<Image*>(image)); }
char CUDARTAPI __cudaInitModule(void**) { return 1; }

void CUDARTAPI __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, uint3*, uint3*,
                                      dim3*, dim3*, int*) {
  add_kernel(reinterpret_cast<Image*>(image), host, name);
}

void CUDARTAPI __cudaRegisterVar(void** image, char* host, char*, const char* name, int, size_t bytes, int, int) {
  add_variable(reinterpret_cast<Image*>(image), host, name, bytes);
}

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  t_pushed.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (t_pushed.empty()) return done(cudaErrorMissingConfiguration);
  const Configuration& c = t_pushed.back();
  *grid = c.grid;
  *block = c.block;
  *shared_bytes = c.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  t_pushed.pop_back();
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  USE_CONTEXT();
  return done(find_kernel(host, kernel));
}

cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                         size_t shared_bytes, cudaStream_t stream) {
  USE_CONTEXT();
  return done(launch(kernel, {grid, block, shared_bytes, stream}, arguments));
}

cudaError_t CUDARTAPI cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                       cudaStream_t stream) {
  return launch_host(host, {grid, block, shared_bytes, stream}, arguments);
}

cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** arguments,
                                                  size_t shared_bytes, cudaStream_t stream) {
  return launch_host(host, {grid, block, shared_bytes, stream}, arguments);
}

cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* host, void** arguments) {
  if (!c) return done(cudaErrorInvalidValue);
  return launch_host(host, {c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream}, arguments);
}

cudaError_t CUDARTAPI cudaGetKernel(cudaKernel_t* kernel, const void* host) { return __cudaGetKernel(kernel, host); }

cudaError_t CUDARTAPI cudaGetFuncBySymbol(cudaFunction_t* function, const void* host) {
  return __cudaGetKernel(reinterpret_cast<cudaKernel_t*>(function), host);
}

cudaError_t CUDARTAPI cudaFuncGetName(const char** name, const void* host) {
  USE_CONTEXT();
  CUkernel kernel = nullptr;
  if (const cudaError_t code = find_kernel(host, &kernel)) return done(code);
  return done(cuKernelGetName(name, kernel));
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(struct cudaFuncAttributes* out, const void* host) {
  if (!out) return done(cudaErrorInvalidValue);
  USE_CONTEXT();
  CUkernel kernel = nullptr;
  if (const cudaError_t code = find_kernel(host, &kernel)) return done(code);
  *out = {};
  out->maxThreadsPerBlock = attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out->numRegs = attribute(kernel, CU_FUNC_ATTRIBUTE_NUM_REGS);
  out->ptxVersion = out->binaryVersion = compute_capability();
  out->maxDynamicSharedSizeBytes = dynamic_shared_limit(kernel);
  out->preferredShmemCarveout = -1;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* host, enum cudaFuncAttribute name, int value) {
  USE_CONTEXT();
  CUkernel kernel = nullptr;
  if (const cudaError_t code = find_kernel(host, &kernel)) return done(code);
  return done(set_attribute(kernel, name, value));
}

cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute name, int value,
                                                      int) {
  USE_DRIVER();
  return done(set_attribute(kernel, name, value));
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void* host, enum cudaFuncCache) {
  USE_CONTEXT();
  CUkernel kernel = nullptr;
  return done(find_kernel(host, &kernel));
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int block_size,
                                                                    size_t shared_bytes) {
  USE_CONTEXT();
  return done(occupancy(blocks, host, block_size, shared_bytes));
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host,
                                                                             int block_size, size_t shared_bytes,
                                                                             unsigned int) {
  USE_CONTEXT();
  return done(occupancy(blocks, host, block_size, shared_bytes));
}

cudaError_t CUDARTAPI cudaGetSymbolAddress(void** at, const void* symbol) {
  USE_CONTEXT();
  size_t bytes = 0;
  return done(find_variable(symbol, reinterpret_cast<CUdeviceptr*>(at), &bytes));
}

cudaError_t CUDARTAPI cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  USE_CONTEXT();
  CUdeviceptr at = 0;
  return done(find_variable(symbol, &at, bytes));
}

cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void* symbol, const void* src, size_t bytes, size_t offset,
                                         enum cudaMemcpyKind kind) {
  USE_CONTEXT();
  CUdeviceptr at = 0;
  size_t size = 0;
  if (const cudaError_t code = find_variable(symbol, &at, &size)) return done(code);
  if (offset > size || bytes > size - offset) return done(cudaErrorInvalidValue);
  return cudaMemcpy(reinterpret_cast<void*>(at + offset), src, bytes, kind);
}

cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t* library, const void* code, enum cudaJitOption*, void**,
                                          unsigned int, enum cudaLibraryOption*, void**, unsigned int) {
  USE_CONTEXT();
  return done(cuLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0));
}

cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t library) {
  USE_CONTEXT();
  return done(cuLibraryUnload(library));
}

cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  USE_CONTEXT();
  const CUresult code = cuLibraryGetKernel(kernel, library, name);
  if (code == CUDA_SUCCESS) know_kernel(*kernel);
  return done(code);
}

}  // extern "C"
