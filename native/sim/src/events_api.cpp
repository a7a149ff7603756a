// Events, those of streams and those of whole contexts.
#include <ctime>

#include "capture.h"
#include "context.h"
#include "works.h"

using namespace memxsim;

namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

EventHandle* live_event(CUevent event) {
  EventHandle* handle = driver().events.check(event);
  return handle && handle->live ? handle : nullptr;
}

CUresult record(CUevent event, CUstream stream, unsigned flags) {
  if (flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  EventHandle* handle = live_event(event);
  if (!handle || handle->context != queue->context) return CUDA_ERROR_INVALID_HANDLE;
  if (queue->context->error) return queue->context->error;
  if (queue->capture) return record_event_in_capture(*queue, *handle, flags);
  if (flags) return CUDA_ERROR_INVALID_VALUE;  // an external event is one of a capture
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  handle->capture_id = 0;
  handle->captured.clear();
  handle->record = record_on(*queue);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int flags) {
  ENTER(cuEventCreate);
  if (!out || (flags & ~kEventFlags)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  USE_CONTEXT(context);
  EventHandle* handle = driver().events.take();
  if (!handle) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->live = true;
  handle->flags = flags;
  handle->context = context;
  *out = reinterpret_cast<CUevent>(handle);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  ENTER(cuEventDestroy);
  const Lock lock(driver().lock);
  EventHandle* handle = live_event(event);
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult error = handle->context->error;
  *handle = {};
  driver().events.give(handle);
  return error;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  ENTER(cuEventRecord);
  return record(event, stream, 0);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  ENTER(cuEventRecordWithFlags);
  return record(event, stream, flags);
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  ENTER(cuEventQuery);
  const Lock lock(driver().lock);
  const EventHandle* handle = live_event(event);
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  if (handle->context->error) return handle->context->error;
  if (const CUresult forbidden = forbid_event_wait(*handle)) return forbidden;
  if (!handle->record) return CUDA_SUCCESS;
  if (!is_complete(handle->record->point)) return CUDA_ERROR_NOT_READY;
  driver().oracle.host_learns(handle->record->stamp);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize);
  Lock lock(driver().lock);
  const EventHandle* handle = live_event(event);
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  Context& context = *handle->context;
  if (context.error) return context.error;
  if (const CUresult forbidden = forbid_event_wait(*handle)) return forbidden;
  const std::shared_ptr<EventRecord> record = handle->record;
  if (record) host_wait(lock, *record);
  return context.error;
}

CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  ENTER(cuEventElapsedTime);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const EventHandle* a = live_event(start);
  const EventHandle* b = live_event(end);
  if (!a || !b || a->context->device != b->context->device) return CUDA_ERROR_INVALID_HANDLE;
  if (a->context->error) return a->context->error;
  if (!a->record || !b->record || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_complete(a->record->point) || !is_complete(b->record->point)) return CUDA_ERROR_NOT_READY;
  const auto elapsed = static_cast<int64_t>(*b->record->time_ns - *a->record->time_ns);
  *milliseconds = static_cast<float>(static_cast<double>(elapsed) / 1e6);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext handle, CUevent event) {
  ENTER(cuCtxRecordEvent);
  const Lock lock(driver().lock);
  Context* context = context_from(handle);
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  EventHandle* target = live_event(event);
  if (!target || target->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (context->error) return context->error;
  if (const CUresult forbidden = forbid_in_capture(*context)) return forbidden;
  target->capture_id = 0;
  target->captured.clear();
  target->record = record_on_context(*context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext handle, CUevent event) {
  ENTER(cuCtxWaitEvent);
  const Lock lock(driver().lock);
  Context* context = context_from(handle);
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  const EventHandle* source = live_event(event);
  if (!source) return CUDA_ERROR_INVALID_HANDLE;
  if (context->error) return context->error;
  if (source->capture_id) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult forbidden = forbid_in_capture(*context)) return forbidden;
  if (!source->record) return CUDA_SUCCESS;
  wait_for_record(*context, source->record);
  return CUDA_SUCCESS;
}

}  // extern "C"
