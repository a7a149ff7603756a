// The one driver: its lock, its memory, its contexts. Never destroyed, since calls may come during exit.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "address.h"
#include "calls.h"
#include "handles.h"
#include "memx_sim.h"
#include "oracle.h"
#include "physical.h"
#include "stream.h"
#include "sync.h"

namespace memxsim {

struct Context {
  int device = 0;
  bool primary = false;
  bool alive = false;
  uint32_t retains = 0;
  unsigned flags = 0;
  CUresult error = CUDA_SUCCESS;  // sticky
  uint64_t id = 0;
  QueueRef legacy;
  QueueRef marker;  // internal: where cuCtxRecordEvent's points are
  std::vector<QueueRef> queues;   // those alive or not yet drained, legacy and internal included
  std::vector<Queue*> busy;       // with work queued
  std::vector<QueueRef> touched;  // blocking, used since the last legacy operation
  Clock dead, dead_blocking;      // what streams that are gone had done
  std::vector<std::shared_ptr<EventRecord>> context_waits;  // of cuCtxWaitEvent, for streams made later
  Clock context_waited;                                     // what those waits were for, complete ones too
  uint64_t peers = 0;             // devices that kernels of this context may reach in cuMemAlloc memory
  uint32_t captures = 0;
};

struct Driver {
  Driver() : addresses(store) {}

  Mutex lock;
  memxsim_config config{};
  Store store;
  AddressSpace addresses;
  Oracle oracle;
  Context* primary[kMaxDevices] = {};
  std::vector<std::unique_ptr<Context>> contexts;
  std::unordered_map<CUmemGenericAllocationHandle, PhysRef> handles;
  CUmemGenericAllocationHandle next_handle = 0x100000;
  uint64_t next_stream_id = 1;
  uint64_t next_context_id = 1;
  size_t modules = 0;
  HandlePool<StreamHandle> streams{1 << 16};
  HandlePool<EventHandle> events{1 << 22};
  std::atomic<int> sticky{CUDA_SUCCESS};  // the first context's failure, for calls that belong to no context
};

Driver& driver();

// The calling thread's current context, null if none.
Context* current_context();
Context* context_from(CUcontext handle);
inline CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

bool is_sticky(CUresult code);
void poison(Context& context, CUresult code);
void poison_current_context(CUresult code);  // takes the lock

// The queue behind a stream argument; null with the code in *error.
Queue* queue_of(CUstream stream, CUresult* error);

bool uses_per_thread_default_stream();

// What a call that waits for the device, or may do so, answers while a stream is being captured; it ends the
// capture too, as documented. Success where nothing forbids it.
CUresult forbid_in_capture(Context& context);
// ... and one that may wait implicitly, by the capture mode of the calling thread.
CUresult forbid_unsafe_call();

}  // namespace memxsim

// The current context, usable; returns from the calling function otherwise.
#define USE_CONTEXT(name)                                                     \
  ::memxsim::Context* const name = ::memxsim::current_context();              \
  if (!name) return CUDA_ERROR_INVALID_CONTEXT;                               \
  if (name->error) return name->error
// For calls on memory that belong to no context.
#define REFUSE_AFTER_STICKY()                                                 \
  if (const int sticky_ = ::memxsim::driver().sticky.load(std::memory_order_relaxed)) \
    return static_cast<CUresult>(sticky_)
