// Stream capture: what a capturing stream does with work instead of running it, and what is forbidden
// meanwhile. All with the driver's lock held.
#pragma once

#include <memory>
#include <vector>

#include "graph.h"
#include "state.h"

namespace memxsim {

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  Context* context = nullptr;
  Queue* origin = nullptr;
  const void* thread = nullptr;
  bool invalidated = false;
  std::vector<Queue*> streams;
  std::vector<GraphNode*> left_by_streams;  // that are gone: the last work of each
  std::unique_ptr<Graph> graph;
  std::vector<CUgraphEdgeData> edges;  // all default; what the last question about dependencies was given
};

CUresult begin_capture(Queue& queue, CUstreamCaptureMode mode);
// Ends the capture that began on the queue, whatever became of it; null and an error if there is no graph.
CUresult end_capture(Queue& queue, std::unique_ptr<Graph>* graph);
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

CUresult add_to_capture(Queue& queue, WorkRef work);
CUresult record_event_in_capture(Queue& queue, EventHandle& event, unsigned flags);
CUresult wait_event_in_capture(Queue& queue, const EventHandle& event);
void stream_leaves_capture(Queue& queue);

// Waiting for, or asking about, a stream or event that is capturing; using the legacy stream while a blocking
// stream captures; and calls that could wait for the whole device. Each says what the call must answer.
CUresult forbid_stream_wait(Queue& queue);
CUresult forbid_event_wait(const EventHandle& event);
CUresult forbid_legacy_in_capture(Queue& queue);
// Whether the legacy stream is so; asking ends no capture.
bool legacy_is_unusable(const Queue& queue);

}  // namespace memxsim
