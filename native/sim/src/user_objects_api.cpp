// User objects as programs see them.
#include <climits>

#include "graph.h"
#include "state.h"
#include "user_objects.h"

using namespace memxsim;

namespace {

bool valid_count(unsigned count) { return count >= 1 && count <= INT_MAX; }

}  // namespace

extern "C" {

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned int references,
                                    unsigned int flags) {
  ENTER(cuUserObjectCreate);
  if (!out || !destroy || !valid_count(references) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  *out = reinterpret_cast<CUuserObject>(make_user_object(data, destroy, references));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  ENTER(cuUserObjectRetain);
  if (!valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  UserObject* object = user_object_from(handle);
  if (!object) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  object->programs += count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  ENTER(cuUserObjectRelease);
  if (!valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  UserObject* object = user_object_from(handle);
  if (!object || object->programs < count) return CUDA_ERROR_INVALID_VALUE;
  object->programs -= count;
  release_user_object(*object, count);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                         unsigned int flags) {
  ENTER(cuGraphRetainUserObject);
  if (!valid_count(count) || (flags && flags != CU_GRAPH_USER_OBJECT_MOVE)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  Graph* graph = graph_from(graph_handle);
  UserObject* object = user_object_from(handle);
  if (!graph || !object) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_GRAPH_USER_OBJECT_MOVE) {
    if (object->programs < count) return CUDA_ERROR_INVALID_VALUE;
    object->programs -= count;
  } else {
    object->references += count;
  }
  graph->objects.adopt(*object, count);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  ENTER(cuGraphReleaseUserObject);
  if (!valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  Graph* graph = graph_from(graph_handle);
  UserObject* object = user_object_from(handle);
  if (!graph || !object || !graph->objects.release(*object, count)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // extern "C"
