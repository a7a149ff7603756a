// What every function of the simulated runtime needs: the driver started, a context current, and the thread's last
// error. Only the driver API is below; nothing here knows that the driver is simulated.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace memxrt {

struct ThreadState {
  cudaError_t last = cudaSuccess;
  int resets = 0;  // of devices, before that
  int device = 0;  // the one chosen, until a context is current
};
extern constinit thread_local ThreadState t_state;
int resets();  // of primary contexts, so far

// The codes of the driver and of the runtime are the same numbers.
inline cudaError_t to_runtime(CUresult code) { return static_cast<cudaError_t>(code); }

// The end of every function: failures are remembered for cudaGetLastError.
inline cudaError_t done(cudaError_t code) {
  if (code != cudaSuccess) {
    t_state.last = code;
    t_state.resets = resets();
  }
  return code;
}
inline cudaError_t done(CUresult code) { return done(to_runtime(code)); }

// Errors that the context does not recover from.
bool is_sticky(cudaError_t code);

cudaError_t start_driver();
// Starts the driver and makes the primary context of the thread's device current where no context is.
cudaError_t use_context();
cudaError_t retain_primary(int device, CUcontext* context);
void forget_primary(int device);  // it was reset
bool is_device(int device);

// A function of the driver that it may lack; null then.
void* driver_function(const char* name, int version);

inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace memxrt

// First line of a runtime function that needs a context, or the driver only.
#define USE_CONTEXT() \
  if (const cudaError_t refused_ = ::memxrt::use_context()) return ::memxrt::done(refused_)
#define USE_DRIVER() \
  if (const cudaError_t refused_ = ::memxrt::start_driver()) return ::memxrt::done(refused_)
