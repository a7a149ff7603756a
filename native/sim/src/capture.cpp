#include "capture.h"

#include <algorithm>
#include <unordered_set>

namespace memxsim {

namespace {

struct Captures {
  std::vector<std::unique_ptr<Capture>> active;
  uint64_t next_id = 1;
};

Captures& captures() {
  static auto* instance = new Captures;
  return *instance;
}

thread_local char t_thread_token;
thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

Capture* capture_with_id(uint64_t id) {
  for (const auto& capture : captures().active)
    if (capture->id == id) return capture.get();
  return nullptr;
}

// Every stream goes back to running its work; the capture is gone.
void finish(Capture& capture) {
  for (Queue* stream : capture.streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  --capture.context->captures;
  std::erase_if(captures().active, [&](const auto& active) { return active.get() == &capture; });
}

bool joined(const Capture& capture) {
  std::unordered_set<const GraphNode*> reached;
  std::vector<const GraphNode*> todo(capture.origin->capture_tail.begin(), capture.origin->capture_tail.end());
  while (!todo.empty()) {
    const GraphNode* node = todo.back();
    todo.pop_back();
    if (!reached.insert(node).second) continue;
    todo.insert(todo.end(), node->dependencies.begin(), node->dependencies.end());
  }
  const auto all_reached = [&](const std::vector<GraphNode*>& nodes) {
    return std::all_of(nodes.begin(), nodes.end(), [&](const GraphNode* node) { return reached.count(node) > 0; });
  };
  return all_reached(capture.left_by_streams) &&
         std::all_of(capture.streams.begin(), capture.streams.end(),
                     [&](const Queue* stream) { return all_reached(stream->capture_tail); });
}

bool has_blocking(const Capture& capture) {
  return std::any_of(capture.streams.begin(), capture.streams.end(), [](const Queue* stream) { return stream->blocking(); });
}

}  // namespace

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) { return std::exchange(t_mode, mode); }

CUresult begin_capture(Queue& queue, CUstreamCaptureMode mode) {
  if (queue.kind == Queue::Kind::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (queue.capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_unique<Capture>();
  capture->id = captures().next_id++;
  capture->mode = mode;
  capture->context = queue.context;
  capture->origin = &queue;
  capture->thread = &t_thread_token;
  capture->streams.push_back(&queue);
  capture->graph = std::make_unique<Graph>();
  queue.capture = capture.get();
  ++queue.context->captures;
  captures().active.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult end_capture(Queue& queue, std::unique_ptr<Graph>* graph) {
  Capture* capture = queue.capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &t_thread_token)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != &queue) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!joined(*capture))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  else
    *graph = std::move(capture->graph);
  finish(*capture);
  return result;
}

CUresult add_to_capture(Queue& queue, WorkRef work) {
  Capture& capture = *queue.capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode* node = capture.graph->add(std::move(work), queue.capture_tail);
  queue.capture_tail = {node};
  return CUDA_SUCCESS;
}

CUresult record_event_in_capture(Queue& queue, EventHandle& event, unsigned flags) {
  if (queue.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags & CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_NOT_SUPPORTED;
  event.record = nullptr;
  event.capture_id = queue.capture->id;
  event.captured = queue.capture_tail;
  return CUDA_SUCCESS;
}

CUresult wait_event_in_capture(Queue& queue, const EventHandle& event) {
  if (queue.capture && queue.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!event.capture_id) {
    if (!event.record) return CUDA_SUCCESS;
    queue.capture->invalidated = true;  // a wait for work outside would be lost at replay
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  Capture* capture = capture_with_id(event.capture_id);
  if (!capture) {
    if (queue.capture) queue.capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (queue.capture && queue.capture != capture) {
    queue.capture->invalidated = capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (queue.kind == Queue::Kind::legacy) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (!queue.capture) {
    queue.capture = capture;
    capture->streams.push_back(&queue);
  }
  for (GraphNode* node : event.captured)
    if (std::find(queue.capture_tail.begin(), queue.capture_tail.end(), node) == queue.capture_tail.end())
      queue.capture_tail.push_back(node);
  return CUDA_SUCCESS;
}

void stream_leaves_capture(Queue& queue) {
  Capture& capture = *queue.capture;
  auto& left = capture.left_by_streams;
  left.insert(left.end(), queue.capture_tail.begin(), queue.capture_tail.end());
  queue.capture = nullptr;
  queue.capture_tail.clear();
  std::erase(capture.streams, &queue);
  if (capture.origin == &queue) finish(capture);
}

CUresult forbid_unsafe_call() {
  if (captures().active.empty() || t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : captures().active) {
    const bool own = capture->thread == &t_thread_token && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool any = t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !any) continue;
    capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult forbid_in_capture(Context& context) {
  if (context.captures) {
    for (const auto& capture : captures().active)
      if (capture->context == &context) capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return forbid_unsafe_call();
}

CUresult forbid_stream_wait(Queue& queue) {
  if (queue.capture) {
    queue.capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult forbidden = forbid_legacy_in_capture(queue)) return forbidden;
  return forbid_unsafe_call();
}

CUresult forbid_event_wait(const EventHandle& event) {
  if (event.capture_id) {
    if (Capture* capture = capture_with_id(event.capture_id)) capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return forbid_unsafe_call();
}

bool legacy_is_unusable(const Queue& queue) {
  if (queue.kind != Queue::Kind::legacy || queue.context->captures == 0) return false;
  const auto& active = captures().active;
  return std::any_of(active.begin(), active.end(),
                     [&](const auto& capture) { return capture->context == queue.context && has_blocking(*capture); });
}

CUresult forbid_legacy_in_capture(Queue& queue) {
  if (!legacy_is_unusable(queue)) return CUDA_SUCCESS;
  for (const auto& capture : captures().active)
    if (capture->context == queue.context && has_blocking(*capture)) capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

}  // namespace memxsim
