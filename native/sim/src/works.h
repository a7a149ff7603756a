// The operations that streams carry, kernels apart.
#pragma once

#include <cstring>
#include <memory>

#include "state.h"

namespace memxsim {

// Queues on a stream argument, or adds to the graph that the stream is capturing. Takes the lock.
CUresult submit(CUstream stream, WorkRef work);
CUresult submit_locked(Queue& queue, WorkRef work);

// With the lock held.
std::shared_ptr<EventRecord> record_on(Queue& queue);
std::shared_ptr<EventRecord> record_on_context(Context& context);
void wait_for_record(Queue& queue, const EventRecord& record);
void wait_for_record(Context& context, const std::shared_ptr<EventRecord>& record);  // all of it, streams made later too

struct Marker : Work {  // nothing, in order: waits, and the points of whole contexts
  explicit Marker(const char* work_name) : Work(work_name) {}
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
};

struct RecordEvent : Work {
  explicit RecordEvent(std::shared_ptr<uint64_t> time) : Work("cuEventRecord"), time_ns(std::move(time)) {}
  void completed(Queue&) const override;
  std::shared_ptr<uint64_t> time_ns;
};

struct HostFunction : Work {
  HostFunction(CUhostFn host_function, void* user_data)
      : Work("cuLaunchHostFunc"), function(host_function), data(user_data) {}
  Where where() const override { return Where::callback; }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  void call(CUresult status) const override {
    if (status == CUDA_SUCCESS) function(data);
  }
  CUhostFn function;
  void* data;
};

struct StreamCallback : Work {
  StreamCallback(CUstream on, CUstreamCallback stream_callback, void* user_data)
      : Work("cuStreamAddCallback"), stream(on), callback(stream_callback), data(user_data) {}
  Where where() const override { return Where::callback; }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  void call(CUresult status) const override { callback(stream, status, data); }
  CUstream stream;
  CUstreamCallback callback;
  void* data;
};

// Operands come in pairs, destination and source of equal size: one pair, or one a row.
struct Copy : Work {
  explicit Copy(const char* work_name) : Work(work_name) {}
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  bool has_effect() const override { return true; }
  void perform(const Execution& execution) const override;
  std::unique_ptr<char[]> staged;  // pageable sources are read when the copy is queued
};

// Every operand is filled with repetitions of the value's low `width` bytes.
struct Fill : Work {
  Fill(const char* work_name, uint32_t fill_value, unsigned fill_width)
      : Work(work_name), value(fill_value), width(fill_width) {}
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  bool has_effect() const override { return true; }
  void perform(const Execution& execution) const override;
  uint32_t value;
  unsigned width;
};

void fill_bytes(char* data, uint64_t bytes, uint32_t value, unsigned width);

// Walks two operands of an execution side by side: body(char* a, char* b, uint64_t bytes).
template <typename Body>
void for_pieces(const Execution& execution, size_t a, size_t b, Body&& body) {
  size_t i = execution.first[a], j = execution.first[b];
  uint64_t i_done = 0, j_done = 0;
  while (i < execution.first[a + 1] && j < execution.first[b + 1]) {
    const Span& x = execution.spans[i];
    const Span& y = execution.spans[j];
    const uint64_t bytes = std::min(x.bytes - i_done, y.bytes - j_done);
    body(x.data + i_done, y.data + j_done, bytes);
    i_done += bytes;
    j_done += bytes;
    if (i_done == x.bytes) ++i, i_done = 0;
    if (j_done == y.bytes) ++j, j_done = 0;
  }
}

}  // namespace memxsim
