#include "graph.h"

#include <unordered_map>
#include <unordered_set>

#include "state.h"
#include "works.h"

namespace memxsim {

namespace {

struct Graphs {
  std::unordered_map<const void*, std::unique_ptr<Graph>> owned;
  std::unordered_set<const void*> all, nodes;
  uint64_t next_id = 1;
};

// What the launch holds until it is over, whatever becomes of its graph.
struct LaunchEnd : Marker {
  LaunchEnd() : Marker("cuGraphLaunch") {}
  std::shared_ptr<UserReferences> objects;
};

Graphs& graphs() {
  static auto* instance = new Graphs;
  return *instance;
}

}  // namespace

Graph::Graph() : id(graphs().next_id++) { graphs().all.insert(this); }

Graph::~Graph() {
  for (const auto& node : nodes) graphs().nodes.erase(node.get());
  graphs().all.erase(this);
}

GraphNode* Graph::add(WorkRef work, const std::vector<GraphNode*>& dependencies) {
  auto node = std::make_unique<GraphNode>();
  node->graph = this;
  node->index = nodes.size();
  node->type = work->node_type();
  has_memory = has_memory || node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  node->work = std::move(work);
  node->dependencies = dependencies;
  graphs().nodes.insert(node.get());
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

Graph* adopt_graph(std::unique_ptr<Graph> graph) {
  Graph* handle = graph.get();
  graphs().owned.emplace(handle, std::move(graph));
  return handle;
}

Graph* graph_from(const void* handle) {
  return graphs().all.count(handle) ? static_cast<Graph*>(const_cast<void*>(handle)) : nullptr;
}

GraphNode* node_from(const void* handle) {
  return graphs().nodes.count(handle) ? static_cast<GraphNode*>(const_cast<void*>(handle)) : nullptr;
}

bool drop_graph(const void* handle) {
  const auto found = graphs().owned.find(handle);
  if (found == graphs().owned.end()) return false;
  const std::unique_ptr<Graph> gone = std::move(found->second);
  graphs().owned.erase(found);
  return true;
}

std::unique_ptr<Graph> clone(const Graph& graph) {
  auto copy = std::make_unique<Graph>();
  for (const auto& node : graph.nodes) {
    std::vector<GraphNode*> dependencies;
    for (const GraphNode* dependency : node->dependencies) dependencies.push_back(copy->nodes[dependency->index].get());
    copy->add(node->work, dependencies);
  }
  copy->objects.add(graph.objects);
  return copy;
}

GraphExec::~GraphExec() {
  for (const QueueRef& queue : queues)
    if (!queue->closed) close_queue(queue);
}

std::unique_ptr<GraphExec> instantiate(Context& context, Graph& graph) {
  auto exec = std::make_unique<GraphExec>();
  exec->context_id = context.id;
  exec->has_memory = graph.has_memory;
  exec->executable = std::make_shared<const int>(0);
  graph.executable = exec->executable;
  exec->objects = std::make_shared<UserReferences>(graph.objects);
  std::vector<size_t> lane_end;  // the last step of each lane
  for (const auto& node : graph.nodes) {
    GraphExec::Step step;
    step.work = node->work;
    if (const auto* work = dynamic_cast<const GraphAllocate*>(node->work.get())) step.allocates = work->allocation;
    if (const auto* work = dynamic_cast<const GraphFree*>(node->work.get())) step.frees = work->allocation;
    const size_t index = exec->steps.size();
    size_t lane = SIZE_MAX;
    for (const GraphNode* dependency : node->dependencies)
      if (const size_t of = exec->steps[dependency->index].lane; lane == SIZE_MAX && lane_end[of] == dependency->index) lane = of;
    if (lane == SIZE_MAX) {
      lane = lane_end.size();
      lane_end.push_back(index);
    }
    lane_end[lane] = index;
    step.lane = lane;
    for (const GraphNode* dependency : node->dependencies)
      if (exec->steps[dependency->index].lane != lane) step.waits.push_back(dependency->index);
    exec->steps.push_back(std::move(step));
  }
  exec->lanes = lane_end.empty() ? 1 : lane_end.size();
  for (size_t lane = 1; lane < exec->lanes; ++lane)
    exec->queues.push_back(make_queue(context, Queue::Kind::internal, CU_STREAM_NON_BLOCKING, 0));
  return exec;
}

void launch_graph(GraphExec& graph, Queue& queue) {
  Oracle& oracle = driver().oracle;
  const auto marker = [] { return std::make_shared<Marker>("cuGraphLaunch"); };
  std::vector<Point> before;
  if (graph.last.queue && !is_complete(graph.last)) before.push_back(graph.last);
  oracle.follow(queue, graph.last_stamp);
  const Point start = enqueue(queue, marker(), std::move(before));
  const Stamp start_stamp = oracle.stamp(queue);
  for (const QueueRef& lane : graph.queues) {
    lane->id = queue.id;
    oracle.follow(*lane, start_stamp);
  }
  std::vector<bool> begun(graph.lanes, false);
  begun[0] = true;
  std::vector<Point> points(graph.steps.size());
  std::vector<Stamp> stamps(graph.steps.size());
  for (size_t i = 0; i < graph.steps.size(); ++i) {
    const GraphExec::Step& step = graph.steps[i];
    Queue& lane = step.lane == 0 ? queue : *graph.queues[step.lane - 1];
    std::vector<Point> waits;
    for (const size_t other : step.waits) {
      waits.push_back(points[other]);
      oracle.follow(lane, stamps[other]);
    }
    if (!begun[step.lane]) {
      begun[step.lane] = true;
      waits.push_back(start);
    }
    if (step.allocates) allocation_queued(*step.allocates, waits);
    points[i] = enqueue(lane, step.work, std::move(waits));
    if (step.frees) free_queued(*step.frees, points[i]);
    stamps[i] = oracle.stamp(lane);
  }
  std::vector<Point> ends;
  for (const QueueRef& lane : graph.queues) {
    ends.push_back(lane->tail());
    oracle.follow(queue, oracle.stamp(*lane));
  }
  auto end = std::make_shared<LaunchEnd>();
  end->objects = graph.objects;
  graph.last = enqueue(queue, std::move(end), std::move(ends));
  graph.last_stamp = oracle.stamp(queue);
}

}  // namespace memxsim
