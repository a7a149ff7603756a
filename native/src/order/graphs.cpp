#include "memx/graphs.h"

#include <new>
#include <utility>

namespace memx {

GraphWatch::List::~List() {
  for (Note* note = head.load(); note;) delete std::exchange(note, note->next);
}

void GraphWatch::gone(void* argument) {
  Note* note = static_cast<Note*>(argument);
  const std::shared_ptr<List> list = std::move(note->list);
  note->next = list->head.load(std::memory_order_relaxed);
  while (!list->head.compare_exchange_weak(note->next, note, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void GraphWatch::take_gone(std::vector<Slot>& out) {
  for (Note* note = list_->head.exchange(nullptr, std::memory_order_acquire); note;) {
    if (note->slot != kNobody) out.push_back(note->slot);
    delete std::exchange(note, note->next);
  }
}

GraphWatch::Capture GraphWatch::capture_of(CUstream stream) noexcept {
  Capture capture;
  if (!device_.table().cuUserObjectCreate) return capture;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult result =
      MEMX_CALL(device_, cuStreamGetCaptureInfo, stream, &status, &id, &capture.graph, nullptr, nullptr, nullptr);
  if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) capture.id = id;
  return capture;
}

void GraphWatch::watch(CUgraph graph, Slot slot) noexcept {
  Note* note = new (std::nothrow) Note{list_, slot};
  if (!note) return;
  CUuserObject object = nullptr;
  if (MEMX_CALL(device_, cuUserObjectCreate, &object, static_cast<void*>(note), CUhostFn(&GraphWatch::gone), 1u,
                unsigned(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)) != CUDA_SUCCESS) {
    delete note;
    return;
  }
  if (MEMX_CALL(device_, cuGraphRetainUserObject, graph, object, 1u, unsigned(CU_GRAPH_USER_OBJECT_MOVE)) == CUDA_SUCCESS) return;
  note->slot = kNobody;
  MEMX_CALL(device_, cuUserObjectRelease, object, 1u);  // says that nobody's graph is gone
}

}  // namespace memx
