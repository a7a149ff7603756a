// Graphs as programs see them: captured ones, instantiated and launched. They are not built node by node.
#include <unordered_map>

#include "capture.h"
#include "context.h"
#include "graph.h"

using namespace memxsim;

namespace {

std::unordered_map<const void*, std::unique_ptr<GraphExec>>& executables() {
  static auto* instance = new std::unordered_map<const void*, std::unique_ptr<GraphExec>>;
  return *instance;
}

CUgraphNode handle_of(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }

constexpr unsigned long long kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult make_executable(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  if (!out || (flags & ~kInstantiateFlags)) return CUDA_ERROR_INVALID_VALUE;
  const bool frees_before_launch = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
    return frees_before_launch ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  const Lock lock(driver().lock);
  USE_CONTEXT(context);
  Graph* graph = graph_from(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory && !graph->executable.expired()) return CUDA_ERROR_INVALID_VALUE;
  auto exec = instantiate(*context, *graph);
  exec->frees_before_launch = frees_before_launch;
  *out = reinterpret_cast<CUgraphExec>(exec.get());
  executables().emplace(*out, std::move(exec));
  return CUDA_SUCCESS;
}

// The usual protocol for lists: null asks for the number, else at most *count are written and the rest cleared.
CUresult write_nodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (out)
    for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
  if (!out || *count > nodes.size()) *count = nodes.size();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int flags) {
  ENTER(cuGraphCreate);
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  *out = reinterpret_cast<CUgraph>(adopt_graph(std::make_unique<Graph>()));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
  ENTER(cuGraphDestroy);
  const Lock lock(driver().lock);
  return drop_graph(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphClone(CUgraph* out, CUgraph handle) {
  ENTER(cuGraphClone);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Graph* graph = graph_from(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
  *out = reinterpret_cast<CUgraph>(adopt_graph(clone(*graph)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  return make_executable(out, graph, flags);
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  ENTER(cuGraphInstantiateWithParams);
  if (!parameters) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = make_executable(out, graph, parameters->flags);
  parameters->hErrNode_out = nullptr;
  parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

MEMXSIM_API CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                                                   size_t log_bytes) {
  ENTER(cuGraphInstantiate);
  if (error_node) *error_node = nullptr;
  if (log && log_bytes) *log = 0;
  return make_executable(out, graph, 0);
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream) {
  ENTER(cuGraphUpload);
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  if (!executables().count(handle)) return CUDA_ERROR_INVALID_VALUE;
  return queue_of(stream, &error) ? CUDA_SUCCESS : error;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  ENTER(cuGraphLaunch);
  const Lock lock(driver().lock);
  const auto found = executables().find(handle);
  if (found == executables().end()) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (queue->context->error) return queue->context->error;
  if (queue->context->id != found->second->context_id) return CUDA_ERROR_INVALID_VALUE;
  if (queue->capture) {  // a graph within a graph: its nodes are added one after another
    if (found->second->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
    for (const GraphExec::Step& step : found->second->steps)
      if (const CUresult result = add_to_capture(*queue, step.work)) return result;
    queue->capture->graph->objects.add(*found->second->objects);
    return CUDA_SUCCESS;
  }
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  if (const CUresult refused = begin_graph_memory(*found->second, *queue)) return refused;
  launch_graph(*found->second, *queue);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  ENTER(cuGraphExecDestroy);
  const Lock lock(driver().lock);
  const auto found = executables().find(handle);
  if (found == executables().end()) return CUDA_ERROR_INVALID_VALUE;
  executables().erase(found);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphGetNodes);
  const Lock lock(driver().lock);
  const Graph* graph = graph_from(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes) nodes.push_back(node.get());
  return write_nodes(nodes, out, count);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphGetRootNodes);
  const Lock lock(driver().lock);
  const Graph* graph = graph_from(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes)
    if (node->dependencies.empty()) nodes.push_back(node.get());
  return write_nodes(nodes, out, count);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  ENTER(cuGraphNodeGetType);
  if (!type) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const GraphNode* node = node_from(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                                    size_t* count) {
  ENTER(cuGraphGetEdges);
  if (!count || !from != !to) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Graph* graph = graph_from(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  size_t edges = 0;
  for (const auto& node : graph->nodes)
    for (GraphNode* dependency : node->dependencies) {
      if (from && edges < *count) {
        from[edges] = handle_of(dependency);
        to[edges] = handle_of(node.get());
        if (data) data[edges] = {};
      }
      ++edges;
    }
  if (!from || *count > edges) *count = edges;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, size_t* count) {
  ENTER(cuGraphNodeGetDependencies);
  const Lock lock(driver().lock);
  const GraphNode* node = node_from(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (data && count)
    for (size_t i = 0; i < *count; ++i) data[i] = {};
  return write_nodes(node->dependencies, out, count);
}

}  // extern "C"
