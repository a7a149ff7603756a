#include "capture.h"

namespace memxsim {

CUresult add_to_capture(Queue&, WorkRef) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult record_event_in_capture(Queue&, EventHandle&, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult wait_event_in_capture(Queue&, const EventHandle&) { return CUDA_ERROR_NOT_SUPPORTED; }
void stream_leaves_capture(Queue&) {}
CUresult forbid_stream_wait(Queue&) { return CUDA_SUCCESS; }
CUresult forbid_event_wait(const EventHandle&) { return CUDA_SUCCESS; }
CUresult forbid_legacy_in_capture(Queue&) { return CUDA_SUCCESS; }
CUresult forbid_unsafe_call() { return CUDA_SUCCESS; }
CUresult forbid_in_capture(Context&) { return CUDA_SUCCESS; }

}  // namespace memxsim
