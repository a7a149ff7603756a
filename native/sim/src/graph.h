// Graphs: what capture records and cuGraphLaunch replays. With the driver's lock held.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "graph_memory.h"
#include "stream.h"
#include "user_objects.h"

namespace memxsim {

struct Graph;

struct GraphNode {
  Graph* graph = nullptr;
  size_t index = 0;  // nodes come after what they depend on
  WorkRef work;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<GraphNode*> dependencies;
};

// One that is being captured has a handle too: its capture owns it, the program owns the others.
struct Graph {
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const uint64_t id;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  UserReferences objects;
  bool has_memory = false;             // nodes that allocate or free: no clone, one executable graph at a time
  std::weak_ptr<const int> executable;  // the one

  GraphNode* add(WorkRef work, const std::vector<GraphNode*>& dependencies);
};

// A graph made ready to launch. Nodes that do not depend on one another are on different lanes; lane 0 is the
// launching stream itself.
struct GraphExec {
  struct Step {
    WorkRef work;
    size_t lane = 0;
    std::vector<size_t> waits;  // steps of other lanes
    GraphAllocationRef allocates, frees;
  };
  uint64_t context_id = 0;
  bool frees_before_launch = false;
  bool has_memory = false;
  std::shared_ptr<const int> executable;    // while this one exists there is no other of a graph with memory
  std::shared_ptr<UserReferences> objects;  // shared with launches that are not over
  std::vector<Step> steps;
  size_t lanes = 1;
  std::vector<QueueRef> queues;  // of lanes 1 and up
  Point last;                    // launches of one executable graph follow one another
  Stamp last_stamp;
  ~GraphExec();
};

std::unique_ptr<GraphExec> instantiate(Context& context, Graph& graph);
// After begin_graph_memory.
void launch_graph(GraphExec& graph, Queue& queue);
std::unique_ptr<Graph> clone(const Graph& graph);

Graph* graph_from(const void* handle);
GraphNode* node_from(const void* handle);
Graph* adopt_graph(std::unique_ptr<Graph> graph);
bool drop_graph(const void* handle);  // false: the program owns no such graph

}  // namespace memxsim
