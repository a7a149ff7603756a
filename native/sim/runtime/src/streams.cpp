// Streams and events, which are the driver's own.
#include "runtime.h"

using namespace memxrt;

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  USE_CONTEXT();
  return done(cuStreamCreate(stream, CU_STREAM_DEFAULT));
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  USE_CONTEXT();
  return done(cuStreamCreate(stream, flags));
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  USE_CONTEXT();
  return done(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuStreamDestroy(stream));
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuStreamQuery(stream));
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuStreamSynchronize(stream));
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  USE_CONTEXT();
  return done(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  USE_CONTEXT();
  return done(cuStreamGetFlags(stream, flags));
}

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  USE_CONTEXT();
  return done(cuStreamGetId(stream, id));
}

cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  USE_CONTEXT();
  return done(cuStreamGetPriority(stream, priority));
}

cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int* device) {
  USE_CONTEXT();
  return done(cuStreamGetDevice(stream, device));
}

cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                            unsigned int flags) {
  USE_CONTEXT();
  // The two kinds of callback differ only in how they call the same numbers.
  return done(cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(callback), data, flags));
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  USE_CONTEXT();
  return done(cuLaunchHostFunc(stream, function, data));
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  USE_CONTEXT();
  return done(cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  USE_CONTEXT();
  return done(cuEventCreate(event, flags));
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  USE_CONTEXT();
  return done(cuEventDestroy(event));
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuEventRecord(event, stream));
}

cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  USE_CONTEXT();
  return done(cuEventRecordWithFlags(event, stream, flags));
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  USE_CONTEXT();
  return done(cuEventQuery(event));
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  USE_CONTEXT();
  return done(cuEventSynchronize(event));
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  USE_CONTEXT();
  return done(cuEventElapsedTime(milliseconds, start, end));
}

}  // extern "C"
