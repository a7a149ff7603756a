#include "registry.h"

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace memxrt {

struct Image {
  const void* wrapper = nullptr;
  CUlibrary library = nullptr;
  std::vector<const void*> hosts;
};

namespace {

constexpr int kSharedByDefault = 48 << 10, kSharedAtMost = 227 << 10;

struct Kernel {
  Image* image = nullptr;
  const char* name = nullptr;
  CUkernel handle = nullptr;
};

struct Variable {
  size_t bytes = 0;
  std::map<CUcontext, CUdeviceptr> at;
};

// Tens of thousands of kernels are registered while PyTorch is loaded.
struct Registry {
  std::mutex lock;
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<const void*, Variable> variables;
  std::unordered_map<CUkernel, int> shared_limits;  // of every kernel that a program may hold
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

// With the lock held.
cudaError_t load(Registry& all, Kernel& kernel) {
  Image& image = *kernel.image;
  if (!image.library) {
    const CUresult code = cuLibraryLoadData(&image.library, image.wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (code != CUDA_SUCCESS) return to_runtime(code);
  }
  if (const CUresult code = cuLibraryGetKernel(&kernel.handle, image.library, kernel.name)) return to_runtime(code);
  all.shared_limits.emplace(kernel.handle, kSharedByDefault);
  return cudaSuccess;
}

}  // namespace

Image* add_image(const void* wrapper) {
  auto* image = new Image;
  image->wrapper = wrapper;
  return image;
}

void remove_image(Image* image) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  for (const void* host : image->hosts) {
    all.kernels.erase(host);
    all.variables.erase(host);
  }
  if (image->library) cuLibraryUnload(image->library);
  delete image;
}

void add_kernel(Image* image, const void* host, const char* name) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  all.kernels[host] = {image, name, nullptr};
  image->hosts.push_back(host);
}

void add_variable(Image* image, const void* host, const char*, size_t bytes) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  all.variables[host].bytes = bytes;
  image->hosts.push_back(host);
}

cudaError_t find_kernel(const void* host, CUkernel* kernel) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  const auto found = all.kernels.find(host);
  if (found == all.kernels.end()) {
    *kernel = static_cast<CUkernel>(const_cast<void*>(host));
    return all.shared_limits.count(*kernel) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  }
  if (!found->second.handle)
    if (const cudaError_t code = load(all, found->second)) return code;
  *kernel = found->second.handle;
  return cudaSuccess;
}

void know_kernel(CUkernel kernel) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  all.shared_limits.emplace(kernel, kSharedByDefault);
}

int dynamic_shared_limit(CUkernel kernel) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  const auto found = all.shared_limits.find(kernel);
  return found == all.shared_limits.end() ? kSharedByDefault : found->second;
}

cudaError_t set_dynamic_shared_limit(CUkernel kernel, int bytes) {
  if (bytes < 0 || bytes > kSharedAtMost) return cudaErrorInvalidValue;
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  all.shared_limits[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t find_variable(const void* host, CUdeviceptr* at, size_t* bytes) {
  CUcontext context = nullptr;
  if (const CUresult code = cuCtxGetCurrent(&context)) return to_runtime(code);
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  const auto found = all.variables.find(host);
  if (found == all.variables.end()) return cudaErrorInvalidSymbol;
  Variable& variable = found->second;
  CUdeviceptr& here = variable.at[context];
  if (!here)
    if (const CUresult code = cuMemAlloc(&here, variable.bytes)) return to_runtime(code);
  *at = here;
  *bytes = variable.bytes;
  return cudaSuccess;
}

}  // namespace memxrt
