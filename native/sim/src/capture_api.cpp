// Capture as programs see it.
#include "capture.h"
#include "context.h"

using namespace memxsim;

namespace {

CUstreamCaptureStatus status_of(const Queue& queue) {
  if (!queue.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return queue.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
  if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
      mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (queue->context->error) return queue->context->error;
  return begin_capture(*queue, mode);
}

// A graph that is still being captured has a handle as well, until the capture ends.
CUresult info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (legacy_is_unusable(*queue)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(*queue);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    if (id) *id = 0;
    return CUDA_SUCCESS;
  }
  if (id) *id = queue->capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(queue->capture->graph.get());
  if (dependencies) *dependencies = reinterpret_cast<const CUgraphNode*>(queue->capture_tail.data());
  if (edges) {
    queue->capture->edges.assign(queue->capture_tail.size(), CUgraphEdgeData{});
    *edges = queue->capture->edges.data();
  }
  if (count) *count = queue->capture_tail.size();
  return CUDA_SUCCESS;
}

CUresult update(CUstream stream, const CUgraphNode* nodes, size_t count, unsigned flags) {
  if (count && !nodes) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (!queue->capture || queue->capture->invalidated) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<GraphNode*> given;
  for (size_t i = 0; i < count; ++i) {
    auto* node = reinterpret_cast<GraphNode*>(nodes[i]);
    bool found = false;
    for (const auto& own : queue->capture->graph->nodes) found = found || own.get() == node;
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    given.push_back(node);
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) queue->capture_tail.clear();
  queue->capture_tail.insert(queue->capture_tail.end(), given.begin(), given.end());
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture);
  return begin(stream, mode);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* out) {
  ENTER(cuStreamEndCapture);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  std::unique_ptr<Graph> graph;
  if (const CUresult result = end_capture(*queue, &graph)) return result;
  *out = reinterpret_cast<CUgraph>(adopt_graph(std::move(graph)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER(cuStreamIsCapturing);
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (legacy_is_unusable(*queue)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(*queue);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v1(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  ENTER(cuStreamGetCaptureInfo);
  return info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

MEMXSIM_API CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                                       CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  ENTER(cuStreamGetCaptureInfo);
  return info(stream, status, id, graph, dependencies, nullptr, count);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                           const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  ENTER(cuStreamGetCaptureInfo);
  return info(stream, status, id, graph, dependencies, edges, count);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v1(CUstream stream, CUgraphNode* nodes, size_t count,
                                                                  unsigned int flags) {
  ENTER(cuStreamUpdateCaptureDependencies);
  return update(stream, nodes, count, flags);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*,
                                                      size_t count, unsigned int flags) {
  ENTER(cuStreamUpdateCaptureDependencies);
  return update(stream, nodes, count, flags);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  *mode = exchange_thread_mode(*mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
