// The scheduler: which queue's head can run, who runs it, and who waits for it.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "state.h"

namespace memxsim {

namespace {

constexpr int kWorkers = 2;
constexpr int kIdleSpins = 2000;
constexpr int kBatch = 64;                     // operations run before another ready queue has its turn
constexpr uint64_t kBytesUnderLock = 16 << 10;  // less work than this is cheaper than giving up the lock

struct Scheduler {
  std::deque<Queue*> ready;
  std::deque<QueueRef> to_call;  // their heads are host functions
  std::deque<std::pair<CUhostFn, void*>> to_call_alone;
  Cond work_wake, call_wake;
  std::atomic<uint32_t> ready_hint{0};
  int idle_workers = 0, spinning_workers = 0;
  bool call_idle = false;
  bool started = false, caller_started = false;
  size_t held = 0;
  std::vector<Queue*> waited_for;  // by host threads, once a wait
};

Scheduler& scheduler() {
  static auto* instance = new Scheduler;
  return *instance;
}

void start_thread(void* (*body)(void*)) {
  // Signals are the program's threads' business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(&thread, &attributes, body, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void make_ready(Queue& queue, bool wake_worker = true) {
  Scheduler& s = scheduler();
  queue.state = Queue::State::ready;
  if (queue.priority < 0)
    s.ready.push_front(&queue);
  else
    s.ready.push_back(&queue);
  if (!wake_worker) return;
  s.ready_hint.store(static_cast<uint32_t>(s.ready.size()), std::memory_order_relaxed);
  if (s.idle_workers > 0 && s.spinning_workers == 0) s.work_wake.notify_one();
}

void take_ready(Queue& queue) {
  Scheduler& s = scheduler();
  s.ready.erase(std::find(s.ready.begin(), s.ready.end(), &queue));
  s.ready_hint.store(static_cast<uint32_t>(s.ready.size()), std::memory_order_relaxed);
}

void retire_if_gone(Queue& queue) {
  if (!queue.closed || !queue.drained()) return;
  Context& context = *queue.context;
  driver().oracle.stream_dies(queue);
  const size_t index = queue.context_index;
  std::swap(context.queues[index], context.queues.back());
  context.queues[index]->context_index = index;
  const QueueRef last = std::move(context.queues.back());  // may be the only reference
  context.queues.pop_back();
}

void set_busy(Queue& queue, bool busy) {
  auto& list = queue.context->busy;
  if (busy) {
    queue.busy_index = list.size();
    list.push_back(&queue);
    return;
  }
  list[queue.busy_index] = list.back();
  list[queue.busy_index]->busy_index = queue.busy_index;
  list.pop_back();
  queue.busy_index = SIZE_MAX;
}

void finish_head(Queue& queue) {
  // Destroyed last: what it keeps alive may include this queue.
  const Op done = std::move(queue.ops.front());
  queue.ops.pop_front();
  done.work->completed(queue);
  queue.completed = done.seq;
  if (!queue.parked_here.empty()) {
    std::erase_if(queue.parked_here, [&](const auto& parked) {
      if (parked.first > queue.completed) return false;
      parked.second->parked_on = nullptr;
      make_ready(*parked.second);
      return true;
    });
  }
  if (queue.host_waiters) queue.host_wake.notify_all();
  if (queue.drained()) set_busy(queue, false);
}

thread_local Execution t_execution;

// Runs the head of a queue in state `running`. False if it cannot run now; the state says why.
bool run_head(Queue& queue, Lock& lock) {
  Op& op = queue.ops.front();
  while (!op.waits.empty()) {
    const Point& wait = op.waits.back();
    if (!is_complete(wait)) {
      queue.state = Queue::State::parked;
      queue.parked_on = wait.queue.get();
      wait.queue->parked_here.emplace_back(wait.seq, &queue);
      return false;
    }
    op.waits.pop_back();
  }
  Context& context = *queue.context;
  const Work& work = *op.work;
  if (work.where() == Work::Where::callback) {
    Scheduler& s = scheduler();
    queue.state = Queue::State::calling;
    s.to_call.push_back(queue.shared_from_this());
    s.call_wake.notify_one();
    return false;
  }
  if (context.error == CUDA_SUCCESS) {
    Execution& execution = t_execution;
    execution.clear();
    execution.device = context.device;
    if (!work.prepare(execution)) {
      poison(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (work.has_effect() && !driver().store.accounting_only()) {
      if (work.bytes_touched > kBytesUnderLock) {
        lock.unlock();
        work.perform(execution);
        lock.lock();
      } else {
        work.perform(execution);
      }
    }
    execution.clear();  // under the lock: it may be the last owner of memory
  }
  finish_head(queue);
  return true;
}

// Runs a queue taken from the ready list, until it is empty or stops or the batch or `until` is reached.
void run_queue(Queue& queue, Lock& lock, uint64_t until = UINT64_MAX) {
  const QueueRef keep = queue.shared_from_this();
  queue.state = Queue::State::running;
  for (int i = 0; i < kBatch && !queue.ops.empty() && !queue.held && queue.completed < until; ++i)
    if (!run_head(queue, lock)) return;
  queue.state = Queue::State::idle;
  if (!queue.ops.empty() && !queue.held)
    make_ready(queue);
  else
    retire_if_gone(queue);
}

void* worker(void*) {
  Scheduler& s = scheduler();
  Lock lock(driver().lock);
  while (!g_exiting.load(std::memory_order_relaxed)) {
    if (s.ready.empty()) {
      if (s.idle_workers == 0) {  // one worker looks for a while before it sleeps
        ++s.spinning_workers;
        lock.unlock();
        for (int i = 0; i < kIdleSpins && !s.ready_hint.load(std::memory_order_relaxed); ++i) {
#if defined(__x86_64__)
          __builtin_ia32_pause();
#endif
        }
        lock.lock();
        --s.spinning_workers;
        if (!s.ready.empty()) continue;
      }
      ++s.idle_workers;
      s.work_wake.wait(lock);
      --s.idle_workers;
      continue;
    }
    Queue& queue = *s.ready.front();
    s.ready.pop_front();
    s.ready_hint.store(static_cast<uint32_t>(s.ready.size()), std::memory_order_relaxed);
    if (!s.ready.empty() && s.idle_workers > 0 && s.spinning_workers == 0) s.work_wake.notify_one();
    run_queue(queue, lock);
  }
  return nullptr;
}

// Host functions run here, one at a time, in no thread that kernels need. No exception may pass, but a thread
// may be ended inside one (an interpreter that is finalising does so): nothing here is unwound by a handler.
void* caller(void*) {
  t_in_host_function = true;
  Scheduler& s = scheduler();
  Lock lock(driver().lock);
  while (!g_exiting.load(std::memory_order_relaxed)) {
    if (!s.to_call_alone.empty()) {
      const auto [function, data] = s.to_call_alone.front();
      s.to_call_alone.pop_front();
      lock.unlock();
      function(data);
      lock.lock();
      continue;
    }
    if (s.to_call.empty()) {
      s.call_wake.wait(lock);
      continue;
    }
    const QueueRef queue = std::move(s.to_call.front());
    s.to_call.pop_front();
    if (queue->held) {
      queue->state = Queue::State::idle;
      continue;
    }
    const WorkRef work = queue->ops.front().work;
    Stamp before = queue->ops.front().stamp;
    if (before.seq) --before.seq;
    driver().oracle.host_learns(before);
    const CUresult status = queue->context->error;
    lock.unlock();
    work->call(status);
    lock.lock();
    finish_head(*queue);
    queue->state = Queue::State::idle;
    if (!queue->ops.empty() && !queue->held)
      make_ready(*queue);
    else
      retire_if_gone(*queue);
  }
  return nullptr;
}

void start_workers(bool caller_too) {
  Scheduler& s = scheduler();
  if (!s.started) {
    s.started = true;
    for (int i = 0; i < kWorkers; ++i) start_thread(worker);
  }
  if (caller_too && !s.caller_started) {
    s.caller_started = true;
    start_thread(caller);
  }
}

// Releases every held queue that the points depend on.
void release_dependencies(const std::vector<Point>& points) {
  if (scheduler().held == 0) return;
  std::unordered_map<Queue*, uint64_t> seen;
  std::vector<std::pair<Queue*, uint64_t>> todo;
  for (const Point& point : points) todo.emplace_back(point.queue.get(), point.seq);
  while (!todo.empty()) {
    const auto [queue, seq] = todo.back();
    todo.pop_back();
    uint64_t& done = seen[queue];
    if (queue->completed >= seq || done >= seq) continue;
    for (const Op& op : queue->ops) {
      if (op.seq > seq) break;
      if (op.seq <= done) continue;
      for (const Point& wait : op.waits) todo.emplace_back(wait.queue.get(), wait.seq);
    }
    done = seq;
    if (queue->held) release(*queue);
  }
}

// Runs work on the calling thread if the queue, or the one that it is parked on, is ready.
bool help(Queue* queue, Lock& lock, uint64_t until) {
  while (queue->state == Queue::State::parked && queue->parked_on) {
    queue = queue->parked_on;
    until = UINT64_MAX;
  }
  if (queue->state != Queue::State::ready) return false;
  take_ready(*queue);
  run_queue(*queue, lock, until);
  return true;
}

}  // namespace

bool Work::prepare(Execution& execution) const {
  AddressSpace& addresses = driver().addresses;
  for (const Operand& operand : operands) {
    execution.first.push_back(execution.spans.size());
    if (operand.pageable) {
      execution.spans.push_back({reinterpret_cast<char*>(operand.va), operand.bytes, nullptr});
      continue;
    }
    const int device = operand.device == Operand::kQueues ? execution.device : operand.device;
    const bool writes = operand.kind != AccessKind::read;
    if (!addresses.resolve(device, operand.va, operand.bytes, writes, execution.spans)) return false;
  }
  execution.first.push_back(execution.spans.size());
  return true;
}

bool is_complete(const Point& point) { return !point.queue || point.queue->completed >= point.seq; }

namespace {

void record_accesses(Queue& queue, const Work& work, uint64_t seq) {
  Driver& d = driver();
  Operation by{queue.slot, seq, queue.id, seq - queue.first_seq, work.name, 0};
  const auto record = [&](const Operand& operand) {
    if (operand.pageable || operand.bytes == 0) return;
    by.device = operand.device == Operand::kQueues ? queue.context->device : operand.device;
    const AccessRecord access{by, operand.kind, operand.va, operand.bytes};
    uint64_t next = operand.va;
    for (Region* region : d.addresses.covering(operand.va, operand.bytes)) {
      const uint64_t stop = std::min(region->end(), operand.va + operand.bytes);
      if (region->over) d.oracle.outlives(*region->over, access);
      d.oracle.access(queue, *region, next - region->va, stop - next, access);
      next = stop;
    }
  };
  for (const Operand& operand : work.operands) record(operand);
  std::vector<Operand> more;
  work.more_operands(more);
  for (const Operand& operand : more) record(operand);
}

void follow_implicit_order(Queue& queue, std::vector<Point>& waits) {
  Driver& d = driver();
  Context& context = *queue.context;
  if (queue.kind == Queue::Kind::legacy) {
    for (Queue* other : context.busy)
      if (other->blocking()) waits.push_back(other->tail());
    for (const QueueRef& other : context.touched) {
      other->touched = false;
      d.oracle.follow(queue, d.oracle.stamp(*other));
    }
    context.touched.clear();
    d.oracle.follow(queue, context.dead_blocking);
    context.dead_blocking = {};
  } else if (queue.blocking()) {
    Queue& legacy = *context.legacy;
    if (!legacy.drained() && queue.legacy_followed < legacy.enqueued) {
      queue.legacy_followed = legacy.enqueued;
      waits.push_back(legacy.tail());
    }
    d.oracle.follow(queue, d.oracle.stamp(legacy));
    if (!queue.touched) {
      queue.touched = true;
      context.touched.push_back(queue.shared_from_this());
    }
  }
}

}  // namespace

Point enqueue(Queue& queue, WorkRef work, std::vector<Point> waits, bool soon_waited_for) {
  Driver& d = driver();
  d.oracle.follow_host(queue);
  follow_implicit_order(queue, waits);
  const uint64_t seq = ++queue.enqueued;
  record_accesses(queue, *work, seq);
  if (queue.busy_index == SIZE_MAX) set_busy(queue, true);
  Op op{seq, std::move(work), std::move(waits), {}};
  if (op.work->where() == Work::Where::callback) op.stamp = d.oracle.stamp(queue);
  start_workers(op.work->where() == Work::Where::callback);
  queue.ops.push_back(std::move(op));
  if (queue.state == Queue::State::idle && !queue.held) make_ready(queue, !soon_waited_for);
  return queue.tail();
}

AccessRecord queued_free(const Point& point, uint64_t va, uint64_t bytes) {
  const Queue& queue = *point.queue;
  AccessRecord record;
  record.by = {queue.slot, point.seq, queue.id, point.seq - queue.first_seq, "cuMemFreeAsync", queue.context->device};
  record.address = va;
  record.bytes = bytes;
  return record;
}

void call_later(CUhostFn function, void* data) {
  start_workers(true);
  scheduler().to_call_alone.emplace_back(function, data);
  scheduler().call_wake.notify_one();
}

namespace {

void wait_for(Lock& lock, const std::vector<Point>& points) {
  Scheduler& s = scheduler();
  release_dependencies(points);
  for (const Point& point : points) {
    Queue& queue = *point.queue;
    while (queue.completed < point.seq) {
      if (help(&queue, lock, point.seq)) continue;
      ++queue.host_waiters;
      s.waited_for.push_back(&queue);
      queue.host_wake.wait(lock);
      s.waited_for.erase(std::find(s.waited_for.begin(), s.waited_for.end(), &queue));
      --queue.host_waiters;
      release_dependencies(points);
    }
  }
}

}  // namespace

void host_wait(Lock& lock, const EventRecord& record) {
  const Stamp stamp = record.stamp;
  wait_for(lock, {record.point});
  driver().oracle.host_learns(stamp);
}

void host_wait(Lock& lock, Queue& queue) {
  const Stamp stamp = driver().oracle.stamp(queue);
  wait_for(lock, {queue.tail()});
  driver().oracle.host_learns(stamp);
}

void host_wait_context(Lock& lock, Context& context) {
  Oracle& oracle = driver().oracle;
  std::vector<Point> points;
  std::vector<Stamp> stamps;
  for (const QueueRef& queue : context.queues) {
    if (!queue->drained()) points.push_back(queue->tail());
    stamps.push_back(oracle.stamp(*queue));
  }
  const Clock dead = context.dead;
  wait_for(lock, points);
  for (const Stamp& stamp : stamps) oracle.host_learns(stamp);
  oracle.host_learns(dead);
}

QueueRef make_queue(Context& context, Queue::Kind kind, unsigned flags, int priority) {
  Driver& d = driver();
  auto queue = std::make_shared<Queue>();
  queue->kind = kind;
  queue->context = &context;
  queue->id = d.next_stream_id++;
  queue->flags = flags;
  queue->priority = priority;
  d.oracle.stream_born(*queue);
  queue->context_index = context.queues.size();
  context.queues.push_back(queue);
  return queue;
}

void close_queue(const QueueRef& queue) {
  Driver& d = driver();
  Context& context = *queue->context;
  queue->closed = true;
  if (queue->held) release(*queue);
  const Stamp stamp = d.oracle.stamp(*queue);
  for (Clock* clock : {&context.dead, queue->blocking() ? &context.dead_blocking : nullptr}) {
    if (!clock) continue;
    clock->join(*stamp.known);
    clock->raise(stamp.slot, stamp.seq);
  }
  if (queue->touched) {
    queue->touched = false;
    std::erase(context.touched, queue);
  }
  if (queue->state == Queue::State::idle) retire_if_gone(*queue);
}

void hold(Queue& queue) {
  if (queue.held) return;
  Scheduler& s = scheduler();
  queue.held = true;
  ++s.held;
  if (queue.state == Queue::State::ready) {
    take_ready(queue);
    queue.state = Queue::State::idle;
  }
  // Threads that already wait may depend on it.
  for (Queue* waited : s.waited_for) waited->host_wake.notify_all();
}

void release(Queue& queue) {
  if (!queue.held) return;
  queue.held = false;
  --scheduler().held;
  if (queue.state == Queue::State::idle && !queue.ops.empty()) make_ready(queue);
}

}  // namespace memxsim
