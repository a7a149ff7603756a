#include "context.h"

#include <algorithm>

#include "capture.h"
#include "graph_memory.h"

namespace memxsim {

namespace {

constexpr int kStackDepth = 64;

// No destructor, so that calls during thread exit still find it.
struct CurrentStack {
  Context* contexts[kStackDepth];
  int depth;
};
thread_local CurrentStack t_current{};
thread_local bool t_per_thread_default = false;

// The thread's own default streams end with the thread.
struct ThreadStreams {
  std::vector<std::pair<uint64_t, QueueRef>> by_context;
  ~ThreadStreams() {
    if (g_forked || g_exiting || by_context.empty()) return;
    const Lock lock(driver().lock);
    for (auto& [context, queue] : by_context) {
      if (queue->closed) continue;
      if (queue->capture) stream_leaves_capture(*queue);
      close_queue(queue);
    }
    by_context.clear();
  }
};
thread_local ThreadStreams t_streams;

}  // namespace

PerThreadDefault::PerThreadDefault() : before_(t_per_thread_default) { t_per_thread_default = true; }
PerThreadDefault::~PerThreadDefault() { t_per_thread_default = before_; }
bool uses_per_thread_default_stream() { return t_per_thread_default; }

Context* current_context() { return t_current.depth ? t_current.contexts[t_current.depth - 1] : nullptr; }

Context* context_from(CUcontext handle) {
  for (const auto& context : driver().contexts)
    if (handle_of(context.get()) == handle) return context.get();
  return nullptr;
}

namespace {

Context* new_context(int device, bool primary) {
  driver().contexts.push_back(std::make_unique<Context>());
  Context* context = driver().contexts.back().get();
  context->device = device;
  context->primary = primary;
  return context;
}

}  // namespace

Context& primary_slot(int device) {
  Context*& primary = driver().primary[device];
  if (!primary) primary = new_context(device, true);
  return *primary;
}

Context* make_context(int device, bool primary, unsigned flags) {
  Driver& d = driver();
  Context* context = primary ? &primary_slot(device) : new_context(device, false);
  context->flags = flags;
  context->alive = true;
  context->error = CUDA_SUCCESS;
  context->peers = 0;
  context->id = d.next_context_id++;
  context->legacy = make_queue(*context, Queue::Kind::legacy, 0, 0);
  context->marker = make_queue(*context, Queue::Kind::internal, CU_STREAM_NON_BLOCKING, 0);
  return context;
}

Context* primary_context(int device) { return driver().primary[device]; }

void end_context(Lock& lock, Context& context) {
  host_wait_context(lock, context);  // after a failure too: what is queued must be gone before its memory
  context.alive = false;
  context.context_waits.clear();
  const std::vector<QueueRef> queues = context.queues;
  for (const QueueRef& queue : queues) {
    if (queue->capture) stream_leaves_capture(*queue);
    if (!queue->closed) close_queue(queue);
  }
  context.legacy.reset();
  context.marker.reset();
  context.touched.clear();
  for (int owner = 0; owner < kMaxDevices; ++owner)
    if (context.peers & (uint64_t{1} << owner)) drop_peer(context, owner, "cuCtxDestroy");
  free_context_memory(context);
  if (context.error) {
    context.error = CUDA_SUCCESS;
    int remaining = CUDA_SUCCESS;
    for (const auto& other : driver().contexts)
      if (other->error) remaining = other->error;
    driver().sticky = remaining;
  }
}

void drop_peer(Context& context, int owner, const char* function) {
  Driver& d = driver();
  const uint64_t bit = uint64_t{1} << owner;
  context.peers &= ~bit;
  for (const auto& other : d.contexts)
    if (other->alive && other->device == context.device && (other->peers & bit)) return;
  for (Region* region : d.addresses.allocations_of(owner)) d.oracle.taken_away(*region, function, context.device);
  d.addresses.grant_peer(owner, context.device, kNoAccess);
}

void free_context_memory(Context& context) {
  AddressSpace& addresses = driver().addresses;
  std::vector<uint64_t> gone;
  for (const auto& [va, region] : addresses.regions())
    if (region.context == &context) gone.push_back(va);
  for (const uint64_t va : gone) {
    if (GraphAllocation* allocation = addresses.find(va)->graph_memory) forget_graph_allocation(*allocation);
    leave_pool(*addresses.find(va));
    addresses.remove(va);
    addresses.give_device_va(va);
  }
}

void set_current(Context* context) {
  if (t_current.depth == 0) {
    if (!context) return;
    ++t_current.depth;
  }
  t_current.contexts[t_current.depth - 1] = context;
  if (!context) --t_current.depth;
}

bool push_current(Context* context) {
  if (t_current.depth == kStackDepth) return false;
  t_current.contexts[t_current.depth++] = context;
  return true;
}

void pop_current() { --t_current.depth; }

Queue& per_thread_queue(Context& context) {
  for (auto& [id, queue] : t_streams.by_context)
    if (id == context.id) return *queue;
  t_streams.by_context.emplace_back(context.id, make_queue(context, Queue::Kind::per_thread, 0, 0));
  return *t_streams.by_context.back().second;
}

Queue* queue_of(CUstream stream, CUresult* error) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    Context* context = current_context();
    if (!context || !context->alive) {
      *error = context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
      return nullptr;
    }
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && t_per_thread_default)) return &per_thread_queue(*context);
    return context->legacy.get();
  }
  const StreamHandle* handle = driver().streams.check(stream);
  if (!handle || !handle->queue) {
    *error = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  if (handle->queue->closed) {
    *error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return nullptr;
  }
  return handle->queue.get();
}

}  // namespace memxsim
