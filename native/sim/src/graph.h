// Graphs: what capture records and cuGraphLaunch replays. With the driver's lock held.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "stream.h"

namespace memxsim {

struct Graph;

struct GraphNode {
  Graph* graph = nullptr;
  size_t index = 0;  // nodes come after what they depend on
  WorkRef work;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<GraphNode*> dependencies;
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
  GraphNode* add(WorkRef work, const std::vector<GraphNode*>& dependencies);
};

// A graph made ready to launch. Nodes that do not depend on one another are on different lanes; lane 0 is the
// launching stream itself.
struct GraphExec {
  struct Step {
    WorkRef work;
    size_t lane = 0;
    std::vector<size_t> waits;  // steps of other lanes
  };
  uint64_t context_id = 0;
  std::vector<Step> steps;
  size_t lanes = 1;
  std::vector<QueueRef> queues;  // of lanes 1 and up
  Point last;                    // launches of one executable graph follow one another
  Stamp last_stamp;
  ~GraphExec();
};

std::unique_ptr<GraphExec> instantiate(Context& context, const Graph& graph);
void launch_graph(GraphExec& graph, Queue& queue);

Graph* graph_from(const void* handle);
GraphNode* node_from(const void* handle);
Graph* adopt_graph(std::unique_ptr<Graph> graph);
void drop_graph(Graph& graph);

}  // namespace memxsim
