// Memory that belongs to a graph. Its address is fixed when its node is made; memory is behind it from the launch
// that allocates it until the free is reached. With the driver's lock held.
#pragma once

#include <cuda.h>

#include <array>
#include <memory>
#include <vector>

#include "stream.h"

namespace memxsim {

struct Context;
struct GraphExec;

// Live from the call that queues its allocation to the call that queues its free. The work in between is what the
// device may do with it, whoever else holds it.
struct GraphAllocation : std::enable_shared_from_this<GraphAllocation> {
  ~GraphAllocation();

  uint64_t va = 0, bytes = 0;
  int device = 0;
  uint64_t graph_id = 0;           // whose allocation it is
  std::vector<uint64_t> freed_by;  // graphs with a node that frees it
  std::array<uint8_t, kMaxDevices> access{};
  std::vector<CUmemAccessDesc> access_descs;  // as given
  CUmemPoolProps properties{};
  Region* region = nullptr;        // null once its context is gone
  std::shared_ptr<GraphAllocation> live;  // itself: it may outlive its graph
  Point freed;                     // the last free queued
  uint32_t allocating = 0;         // allocations queued and not reached
  uint32_t overtaken = 0;          // of them, those that cuMemFree undid before they were reached

  bool freed_by_own_graph() const;
};
using GraphAllocationRef = std::shared_ptr<GraphAllocation>;

// Null if there are no addresses left.
GraphAllocationRef make_graph_allocation(Context& context, uint64_t graph_id, uint64_t bytes, int device,
                                         const std::array<uint8_t, kMaxDevices>& access);

struct GraphAllocate : Work {
  explicit GraphAllocate(GraphAllocationRef of);
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
  bool prepare(Execution&) const override { return true; }
  void completed(Queue&) const override;
  const GraphAllocationRef allocation;
};

struct GraphFree : Work {
  explicit GraphFree(GraphAllocationRef of);
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  bool prepare(Execution&) const override { return true; }
  void completed(Queue&) const override;
  const GraphAllocationRef allocation;
};

// What a graph that is given a node to free the address must be told; null and INVALID_VALUE if it may not.
GraphAllocationRef allocation_to_free(uint64_t va, uint64_t graph_id);

// Before anything of a launch is queued: whether its allocations may be made now, and memory for all of them.
CUresult begin_graph_memory(const GraphExec& exec, Queue& queue);
// Around a step of the launch.
void allocation_queued(GraphAllocation& allocation, std::vector<Point>& waits);
void free_queued(GraphAllocation& allocation, const Point& point);

// Outside graphs, in order and at once.
CUresult free_graph_memory(Region& region, Queue& queue);
CUresult free_graph_memory_now(Region& region);

// Its context ends, and its region with it.
void forget_graph_allocation(GraphAllocation& allocation);

struct GraphMemoryUse {
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
GraphMemoryUse& graph_memory_use(int device);
void trim_graph_memory(int device);

}  // namespace memxsim
