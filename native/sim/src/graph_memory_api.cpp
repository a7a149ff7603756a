// Memory nodes as programs see them.
#include <algorithm>

#include "context.h"
#include "graph.h"
#include "graph_memory.h"

using namespace memxsim;

namespace {

bool valid_device(int device) { return device >= 0 && device < static_cast<int>(driver().config.devices); }

// The graph and the nodes that a new node is to follow; null if anything is not what it should be.
Graph* graph_to_extend(CUgraph handle, const CUgraphNode* dependencies, size_t count, std::vector<GraphNode*>* found) {
  Graph* graph = graph_from(handle);
  if (!graph || (count && !dependencies)) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = node_from(dependencies[i]);
    if (!node || node->graph != graph || std::find(found->begin(), found->end(), node) != found->end()) return nullptr;
    found->push_back(node);
  }
  return graph;
}

CUresult access_of(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters, int device, std::array<uint8_t, kMaxDevices>* access) {
  if (parameters.accessDescCount && !parameters.accessDescs) return CUDA_ERROR_INVALID_VALUE;
  (*access)[static_cast<size_t>(device)] = kReadWrite;
  for (size_t i = 0; i < parameters.accessDescCount; ++i) {
    const CUmemAccessDesc& desc = parameters.accessDescs[i];
    if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(desc.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (desc.location.id == device && desc.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    (*access)[static_cast<size_t>(desc.location.id)] = static_cast<uint8_t>(desc.flags);
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  ENTER(cuGraphAddMemAllocNode);
  if (!out || !parameters || !parameters->bytesize) return CUDA_ERROR_INVALID_VALUE;
  const CUmemPoolProps& properties = parameters->poolProps;
  if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const int device = properties.location.id;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::array<uint8_t, kMaxDevices> access{};
  if (const CUresult error = access_of(*parameters, device, &access)) return error;
  const Lock lock(driver().lock);
  USE_CONTEXT(context);
  std::vector<GraphNode*> after;
  Graph* graph = graph_to_extend(handle, dependencies, count, &after);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  const GraphAllocationRef allocation =
      make_graph_allocation(*context, graph->id, parameters->bytesize, device, access);
  if (!allocation) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation->properties = properties;
  allocation->access_descs.assign(parameters->accessDescs, parameters->accessDescs + parameters->accessDescCount);
  *out = reinterpret_cast<CUgraphNode>(graph->add(std::make_shared<GraphAllocate>(allocation), after));
  parameters->dptr = allocation->va;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  ENTER(cuGraphMemAllocNodeGetParams);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const GraphNode* node = node_from(handle);
  const auto* work = node ? dynamic_cast<const GraphAllocate*>(node->work.get()) : nullptr;
  if (!work) return CUDA_ERROR_INVALID_VALUE;
  *out = {};
  out->poolProps = work->allocation->properties;
  out->accessDescs = work->allocation->access_descs.data();
  out->accessDescCount = work->allocation->access_descs.size();
  out->bytesize = work->allocation->bytes;
  out->dptr = work->allocation->va;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                                       CUdeviceptr va) {
  ENTER(cuGraphAddMemFreeNode);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  std::vector<GraphNode*> after;
  Graph* graph = graph_to_extend(handle, dependencies, count, &after);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  GraphAllocationRef allocation = allocation_to_free(va, graph->id);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  allocation->freed_by.push_back(graph->id);
  *out = reinterpret_cast<CUgraphNode>(graph->add(std::make_shared<GraphFree>(std::move(allocation)), after));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* out) {
  ENTER(cuGraphMemFreeNodeGetParams);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const GraphNode* node = node_from(handle);
  const auto* work = node ? dynamic_cast<const GraphFree*>(node->work.get()) : nullptr;
  if (!work) return CUDA_ERROR_INVALID_VALUE;
  *out = work->allocation->va;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  ENTER(cuDeviceGraphMemTrim);
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  trim_graph_memory(device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute name, void* value) {
  ENTER(cuDeviceGetGraphMemAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  const GraphMemoryUse& use = graph_memory_use(device);
  auto& out = *static_cast<cuuint64_t*>(value);
  switch (name) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: out = use.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: out = use.used_high; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: out = use.reserved; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: out = use.reserved_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute name, void* value) {
  ENTER(cuDeviceSetGraphMemAttribute);
  if (!value || *static_cast<cuuint64_t*>(value)) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Lock lock(driver().lock);
  GraphMemoryUse& use = graph_memory_use(device);
  switch (name) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: use.used_high = use.used; return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: use.reserved_high = use.reserved; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // extern "C"
