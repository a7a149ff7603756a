// Stream capture and graphs. What the driver may lack is asked for when it is called.
#include "runtime.h"
#include "values.h"

using namespace memxrt;

namespace {

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));

const CUgraphEdgeData* edges(const cudaGraphEdgeData* data) { return reinterpret_cast<const CUgraphEdgeData*>(data); }

template <typename... Arguments>
cudaError_t call(const char* name, int version, Arguments... arguments) {
  USE_CONTEXT();
  using Function = CUresult (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(driver_function(name, version));
  return done(function ? function(arguments...) : CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  USE_CONTEXT();
  return done(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                    const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* data,
                                                    size_t count, enum cudaStreamCaptureMode mode) {
  return call("cuStreamBeginCaptureToGraph", 12030, stream, graph, dependencies, edges(data), count,
              static_cast<CUstreamCaptureMode>(mode));
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  USE_CONTEXT();
  return done(cuStreamEndCapture(stream, graph));
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  USE_CONTEXT();
  return done(cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** data,
                                               size_t* count) {
  USE_CONTEXT();
  cuuint64_t number = 0;
  const CUresult code =
      cuStreamGetCaptureInfo_v3(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &number, graph, dependencies,
                                reinterpret_cast<const CUgraphEdgeData**>(data), count);
  if (id && code == CUDA_SUCCESS) *id = number;
  return done(code);
}

cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                          const cudaGraphEdgeData* data, size_t count,
                                                          unsigned int flags) {
  USE_CONTEXT();
  return done(cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges(data), count, flags));
}

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  USE_DRIVER();
  return done(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  USE_CONTEXT();
  return done(cuGraphCreate(graph, flags));
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  USE_DRIVER();
  return done(cuGraphDestroy(graph));
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  USE_CONTEXT();
  return done(cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                    unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuGraphUpload(executable, stream));
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  USE_CONTEXT();
  kernel_queued();
  return done(cuGraphLaunch(executable, stream));
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t executable) {
  USE_DRIVER();
  return done(cuGraphExecDestroy(executable));
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  USE_DRIVER();
  return done(cuGraphGetNodes(graph, nodes, count));
}

cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  USE_DRIVER();
  return done(cuGraphGetRootNodes(graph, nodes, count));
}

cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                        cudaGraphEdgeData* data, size_t* count) {
  USE_DRIVER();
  return done(cuGraphGetEdges_v2(graph, from, to, reinterpret_cast<CUgraphEdgeData*>(data), count));
}

cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* type) {
  USE_DRIVER();
  return done(cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                                   cudaGraphEdgeData* data, size_t* count) {
  USE_DRIVER();
  return done(cuGraphNodeGetDependencies_v2(node, dependencies, reinterpret_cast<CUgraphEdgeData*>(data), count));
}

cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                           unsigned int count, unsigned int flags) {
  return call("cuUserObjectCreate", 11030, object, data, destroy, count, flags);
}

cudaError_t CUDARTAPI cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return call("cuUserObjectRetain", 11030, object, count);
}

cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return call("cuUserObjectRelease", 11030, object, count);
}

cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                                unsigned int flags) {
  return call("cuGraphRetainUserObject", 11030, graph, object, count, flags);
}

cudaError_t CUDARTAPI cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count) {
  return call("cuGraphReleaseUserObject", 11030, graph, object, count);
}

cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType name, void* value) {
  return call("cuDeviceGetGraphMemAttribute", 11040, static_cast<CUdevice>(device),
              static_cast<CUgraphMem_attribute>(name), value);
}

cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType name, void* value) {
  return call("cuDeviceSetGraphMemAttribute", 11040, static_cast<CUdevice>(device),
              static_cast<CUgraphMem_attribute>(name), value);
}

cudaError_t CUDARTAPI cudaDeviceGraphMemTrim(int device) {
  return call("cuDeviceGraphMemTrim", 11040, static_cast<CUdevice>(device));
}

}  // extern "C"
