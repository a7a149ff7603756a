// Sharing with other processes, which the simulated device does not do.
#include "runtime.h"

using namespace memxrt;

extern "C" {

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return done(cudaErrorNotSupported); }
cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned int) { return done(cudaErrorNotSupported); }
cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void*) { return done(cudaErrorNotSupported); }
cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return done(cudaErrorNotSupported); }
cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return done(cudaErrorNotSupported); }

}  // extern "C"
