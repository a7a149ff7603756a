#include "runtime.h"

#include <atomic>
#include <mutex>

#include "memx_sim.h"

namespace memxrt {

int unsupported(const char* name);

constinit thread_local ThreadState t_state;

namespace {

constexpr int kMaxDevices = 64;

// Primary contexts that the runtime holds. A reset lets go of one; its handle becomes good again with the next retain.
struct Primaries {
  std::mutex lock;
  CUcontext handle[kMaxDevices] = {};
  bool held[kMaxDevices] = {};
  std::atomic<int> lost{0};  // once held, reset since
};

Primaries& primaries() {
  static auto* instance = new Primaries;
  return *instance;
}

cudaError_t hold_again(CUcontext current) {
  Primaries& all = primaries();
  for (int device = 0; device < kMaxDevices; ++device) {
    bool again = false;
    {
      const std::lock_guard guard(all.lock);
      again = all.handle[device] == current && !all.held[device];
    }
    CUcontext context = nullptr;
    if (again) return retain_primary(device, &context);
  }
  return cudaSuccess;
}

}  // namespace

int resets() { return primaries().lost.load(std::memory_order_relaxed); }

bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

cudaError_t start_driver() {
  static const CUresult started = cuInit(0);
  return to_runtime(started);
}

cudaError_t retain_primary(int device, CUcontext* context) {
  Primaries& all = primaries();
  const std::lock_guard guard(all.lock);
  if (!all.held[device]) {
    if (const CUresult code = cuDevicePrimaryCtxRetain(&all.handle[device], device)) return to_runtime(code);
    all.held[device] = true;
  }
  *context = all.handle[device];
  return cudaSuccess;
}

void forget_primary(int device) {
  Primaries& all = primaries();
  const std::lock_guard guard(all.lock);
  if (!all.held[device]) return;
  all.held[device] = false;
  ++all.lost;
}

bool is_device(int device) {
  int count = 0;
  return cuDeviceGetCount(&count) == CUDA_SUCCESS && device >= 0 && device < count;
}

cudaError_t use_context() {
  if (const cudaError_t code = start_driver()) return code;
  CUcontext context = nullptr;
  if (const CUresult code = cuCtxGetCurrent(&context)) return to_runtime(code);
  if (context) return primaries().lost.load(std::memory_order_relaxed) ? hold_again(context) : cudaSuccess;
  if (const cudaError_t code = retain_primary(t_state.device, &context)) return code;
  return to_runtime(cuCtxSetCurrent(context));
}

void* driver_function(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (cuGetProcAddress(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status)) return nullptr;
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
}

int unsupported(const char* name) {
  memxsim_count(name);
  return done(cudaErrorNotSupported);
}

}  // namespace memxrt

// Tells this library from the real one.
extern "C" int memxsim_runtime() { return 1; }
