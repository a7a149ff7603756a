// The driver during exit: a handler that runs after the driver's own is refused, at once and quietly, with work
// still queued and held.
#include <unistd.h>

#include "check.h"

namespace {

CUdeviceptr g_memory = 0;

void late() {
  const bool refused = cuMemFree(g_memory) == CUDA_ERROR_DEINITIALIZED && cuCtxSynchronize() == CUDA_ERROR_DEINITIALIZED;
  _exit(refused ? 0 : 1);
}

}  // namespace

int main() {
  std::atexit(late);  // before cuInit, so after the driver's
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const Kernels kernels;
  CHECK(cuMemAlloc(&g_memory, 1 << 20));
  CUstream held = nullptr, running = nullptr;
  CHECK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&running, CU_STREAM_NON_BLOCKING));
  CHECK(memxsim_hold(held));
  kernels.stamp_on(held, g_memory, 1 << 20, 1);
  for (int i = 0; i < 1000; ++i) kernels.stamp_on(running, g_memory, 1 << 20, 1);
  return 2;
}
