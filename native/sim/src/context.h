// Contexts: the primary one of each device and those made explicitly; which is current in a thread.
#pragma once

#include "state.h"

namespace memxsim {

Context* make_context(int device, bool primary, unsigned flags);  // or brings a primary one back to life
// Waits for its work, then ends its streams and frees what belongs to it. Its handle stays recognisable.
void end_context(Lock& lock, Context& context);
Context* primary_context(int device);   // null if there never was one
Context& primary_slot(int device);      // made if there never was one, alive or not
void set_current(Context* context);
bool push_current(Context* context);  // false: the stack is full
void pop_current();

// Sets the thread's meaning of stream 0 while it lives.
class PerThreadDefault {
 public:
  PerThreadDefault();
  ~PerThreadDefault();
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

// Keeps the calling thread's own default stream of the context, made at first use.
Queue& per_thread_queue(Context& context);

// Access to another device's allocations is a device's while any of its contexts has asked for it.
void drop_peer(Context& context, int owner, const char* function);

void free_context_memory(Context& context);
void leave_pool(const Region& region);  // it is no memory of its pool any more, if it was any

}  // namespace memxsim
