// Streams as programs see them.
#include <algorithm>

#include "capture.h"
#include "context.h"
#include "works.h"

using namespace memxsim;

namespace {

constexpr int kGreatestPriority = -5;

CUresult create(CUstream* out, unsigned flags, int priority) {
  if (!out || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING))) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  StreamHandle* handle = d.streams.take();
  if (!handle) return CUDA_ERROR_OUT_OF_MEMORY;
  handle->queue = make_queue(*context, Queue::Kind::user, flags, std::clamp(priority, kGreatestPriority, 0));
  handle->id.store(handle->queue->id, std::memory_order_release);
  d.oracle.follow(*handle->queue, context->context_waited);
  for (const auto& record : context->context_waits)
    if (!is_complete(record->point)) wait_for_record(*handle->queue, *record);
  *out = reinterpret_cast<CUstream>(handle);
  return CUDA_SUCCESS;
}

// Finds the queue; nothing of it is touched after the lock is gone.
template <typename Answer>
CUresult ask(CUstream stream, Answer&& with) {
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  return queue ? with(*queue) : error;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned int flags) {
  ENTER(cuStreamCreate);
  return create(out, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  return create(out, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  ENTER(cuStreamDestroy);
  Driver& d = driver();
  const Lock lock(d.lock);
  StreamHandle* handle = d.streams.check(stream);
  if (!handle || !handle->queue) return CUDA_ERROR_INVALID_HANDLE;
  const QueueRef queue = std::move(handle->queue);
  handle->queue = nullptr;
  handle->id.store(0, std::memory_order_release);
  if (queue->capture) stream_leaves_capture(*queue);
  const CUresult error = queue->context->error;
  if (!queue->closed) close_queue(queue);
  d.streams.give(handle);
  return error;
}

CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long* id) {
  ENTER(cuStreamGetId);
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (const StreamHandle* handle = driver().streams.check(stream)) {
    *id = handle->id.load(std::memory_order_acquire);
    return *id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  return ask(stream, [&](Queue& queue) {
    *id = queue.id;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  ENTER(cuStreamGetFlags);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  return ask(stream, [&](Queue& queue) {
    *flags = queue.flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int* priority) {
  ENTER(cuStreamGetPriority);
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  return ask(stream, [&](Queue& queue) {
    *priority = queue.priority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream stream, CUdevice* device) {
  ENTER(cuStreamGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  return ask(stream, [&](Queue& queue) {
    *device = queue.context->device;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
  ENTER(cuStreamGetCtx);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  return ask(stream, [&](Queue& queue) {
    *context = handle_of(queue.context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  ENTER(cuStreamGetCtx);
  if (!context || !green) return CUDA_ERROR_INVALID_VALUE;
  return ask(stream, [&](Queue& queue) {
    *context = handle_of(queue.context);
    *green = nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream stream) {
  ENTER(cuStreamQuery);
  return ask(stream, [&](Queue& queue) {
    if (queue.context->error) return queue.context->error;
    if (const CUresult forbidden = forbid_stream_wait(queue)) return forbidden;
    if (!queue.drained()) return CUDA_ERROR_NOT_READY;
    driver().oracle.host_learns(driver().oracle.stamp(queue));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  ENTER(cuStreamSynchronize);
  Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  Context& context = *queue->context;
  if (context.error) return context.error;
  if (const CUresult forbidden = forbid_stream_wait(*queue)) return forbidden;
  host_wait(lock, *queue);
  return context.error;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  ENTER(cuStreamWaitEvent);
  if (flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  const EventHandle* handle = d.events.check(event);
  if (!handle || !handle->live) return CUDA_ERROR_INVALID_HANDLE;
  if (queue->context->error) return queue->context->error;
  // An external event is one of a capture.
  if (flags) return queue->capture ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  if (handle->capture_id || queue->capture) return wait_event_in_capture(*queue, *handle);
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  if (!handle->record) return CUDA_SUCCESS;
  wait_for_record(*queue, *handle->record);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  ENTER(cuLaunchHostFunc);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, std::make_shared<HostFunction>(function, data));
}

CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void* data, unsigned int) {
  ENTER(cuLaunchHostFunc);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, std::make_shared<HostFunction>(function, data));
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned int flags) {
  ENTER(cuStreamAddCallback);
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  {
    const Lock lock(driver().lock);
    CUresult error = CUDA_SUCCESS;
    Queue* queue = queue_of(stream, &error);
    if (!queue) return error;
    if (const CUresult forbidden = forbid_stream_wait(*queue)) return forbidden;
  }
  return submit(stream, std::make_shared<StreamCallback>(stream, callback, data));
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned int) {
  ENTER(cuStreamAttachMemAsync);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
