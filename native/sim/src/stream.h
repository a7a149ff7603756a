// Streams: queues of work, run in order by worker threads.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "address.h"
#include "oracle.h"
#include "sync.h"

namespace memxsim {

struct Context;
struct Queue;
struct Capture;
struct GraphNode;
using QueueRef = std::shared_ptr<Queue>;

// Everything on a queue up to and including operation `seq`.
struct Point {
  QueueRef queue;
  uint64_t seq = 0;
};

struct Operand {
  uint64_t va = 0, bytes = 0;
  AccessKind kind = AccessKind::read;
  bool pageable = false;  // host memory that the driver knows nothing of
  static constexpr int kQueues = -1;
  int device = kQueues;  // whose access counts
};

// What a worker is given: the spans of operand i are spans[first[i]] up to spans[first[i + 1]].
struct Execution {
  int device = 0;
  std::vector<Span> spans;
  std::vector<size_t> first;
  void clear() {
    spans.clear();
    first.clear();
  }
};

// One operation. Immutable once made: graphs replay it.
struct Work {
  enum class Where { worker, callback };

  explicit Work(const char* work_name) : name(work_name) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  virtual ~Work() = default;

  const char* const name;
  std::vector<Operand> operands;
  uint64_t bytes_touched = 0;  // roughly; little work is done without giving up the lock

  virtual Where where() const { return Where::worker; }
  virtual CUgraphNodeType node_type() const { return CU_GRAPH_NODE_TYPE_KERNEL; }
  // Both with the lock held. `prepare` resolves the operands; false: an illegal address.
  virtual bool prepare(Execution& execution) const;
  virtual void completed(Queue&) const {}  // run whether or not the context has failed
  // Operands that the oracle should count besides `operands`.
  virtual void more_operands(std::vector<Operand>&) const {}
  // The effect on contents, usually without the lock.
  virtual void perform(const Execution&) const {}
  virtual bool has_effect() const { return false; }
  // Callback work: host code, without the lock.
  virtual void call(CUresult) const {}
};
using WorkRef = std::shared_ptr<const Work>;

struct Op {
  uint64_t seq = 0;
  WorkRef work;
  std::vector<Point> waits;
  Stamp stamp;  // for callbacks, which teach host code that what precedes them is complete
};

struct Queue : std::enable_shared_from_this<Queue> {
  enum class Kind { legacy, per_thread, user, internal };
  enum class State { idle, ready, running, parked, calling };

  Kind kind = Kind::user;
  Context* context = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  bool closed = false;  // no handle leads here any more

  std::deque<Op> ops;
  uint64_t enqueued = 0, completed = 0, first_seq = 0;
  State state = State::idle;
  bool held = false;
  Queue* parked_on = nullptr;
  std::vector<std::pair<uint64_t, Queue*>> parked_here;  // (seq awaited, queue)
  uint32_t host_waiters = 0;
  Cond host_wake;

  size_t context_index = 0;            // in the context's list
  size_t busy_index = SIZE_MAX;        // in the context's busy list, SIZE_MAX: not there
  bool touched = false;                // since the last legacy operation
  uint64_t legacy_followed = 0;        // the last legacy operation that work here waits for

  // The oracle's.
  Slot slot = 0;
  std::shared_ptr<Clock> known;
  uint64_t host_generation = 0;
  const void* host_seen = nullptr;

  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;  // what the next captured node depends on

  bool blocking() const { return kind == Kind::per_thread || (kind == Kind::user && !(flags & CU_STREAM_NON_BLOCKING)); }
  bool drained() const { return completed == enqueued; }
  Point tail() { return {shared_from_this(), enqueued}; }
};

// An event's latest record. Replaced, never changed, by the next one; the times are set as it completes.
struct EventRecord {
  Point point;
  Stamp stamp;
  std::shared_ptr<uint64_t> time_ns = std::make_shared<uint64_t>(0);
};

// Queues the operation and gives its point. The caller holds the lock throughout.
Point enqueue(Queue& queue, WorkRef work, std::vector<Point> waits = {}, bool soon_waited_for = false);

// What the oracle is to say of a free that was queued.
AccessRecord queued_free(const Point& point, uint64_t va, uint64_t bytes);

// Has the function called by the thread that calls host functions, in no stream's order.
void call_later(CUhostFn function, void* data);

// Blocks until the event, or all that is on the queue or in the context now, is complete, running that work on
// this thread where possible and releasing held streams that it depends on; then host code knows of it. Gives
// up the lock meanwhile.
void host_wait(Lock& lock, const EventRecord& record);
void host_wait(Lock& lock, Queue& queue);
void host_wait_context(Lock& lock, Context& context);

bool is_complete(const Point& point);

QueueRef make_queue(Context& context, Queue::Kind kind, unsigned flags, int priority);
void close_queue(const QueueRef& queue);

void hold(Queue& queue);
void release(Queue& queue);

}  // namespace memxsim
