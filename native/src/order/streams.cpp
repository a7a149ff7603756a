// What the driver says of streams: who they are, what is captured, which events are over.
#include <algorithm>
#include <optional>

#include "memx/order.h"

namespace memx {

StreamTable::StreamTable(Device& device, ReuseMode mode, bool framework)
    : device_(device), mode_(mode), framework_(framework), streams_(3), graphs_(device) {
  streams_[kLegacy].blocking = streams_[kLegacy].late = true;
  streams_[kContext].late = streams_[kGraph].late = streams_[kGraph].graph = true;
}

// An event that a wait without an end refers to stays with the context.
StreamTable::~StreamTable() {
  if (device_.sticky()) return;
  for (Stream& stream : streams_)
    for (Recorded& recorded : stream.events) let_go(recorded.event);
  for (Event& event : events_)
    if (!event.users) MEMX_CALL(device_, cuEventDestroy, event.handle);
}

Slot StreamTable::ask_slot(Lock& lock, CUstream handle) {
  const bool lasts = framework_ && handle != CU_STREAM_PER_THREAD;
  unsigned long long id = 0;
  unsigned flags = 0;
  bool learnt = false;
  CUresult result = lock.drive([&] {
    std::optional<ContextScope> current;
    if (handle == CU_STREAM_PER_THREAD) current.emplace(device_);
    const CUresult answer = MEMX_CALL(device_, cuStreamGetId, handle, &id);
    if (answer == CUDA_SUCCESS && lasts) learnt = MEMX_CALL(device_, cuStreamGetFlags, handle, &flags) == CUDA_SUCCESS;
    return answer;
  });
  if (result != CUDA_SUCCESS) device_.raise(result, Call::cuStreamGetId, "asking for the identity of a stream");
  auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    if (streams_.size() >= Point::kSlots)
      throw Error(ErrorKind::kInvalidState, "more than a million streams have been used with this memx resource");
    Stream stream;
    stream.id = id;
    stream.per_thread = handle == CU_STREAM_PER_THREAD;
    stream.blocking = stream.per_thread || (learnt && !(flags & CU_STREAM_NON_BLOCKING));
    stream.asked = stream.per_thread || learnt;
    stream.late = lasts;
    streams_.push_back(std::move(stream));
    found = by_id_.emplace(id, static_cast<Slot>(streams_.size() - 1)).first;
  }
  streams_[found->second].handle = handle;
  if (lasts) known(handle) = {handle, found->second};
  return found->second;
}

void StreamTable::learn(Lock& lock, Slot slot) noexcept {
  if (streams_[slot].asked || slot <= kGraph) return;
  unsigned flags = 0;
  const CUstream handle = streams_[slot].handle;
  if (lock.drive([&] { return MEMX_CALL(device_, cuStreamGetFlags, handle, &flags); }) != CUDA_SUCCESS) return;
  Stream& stream = streams_[slot];
  stream.blocking = !(flags & CU_STREAM_NON_BLOCKING);
  stream.asked = true;
}

bool StreamTable::is_live(const Identity& stream) noexcept {
  unsigned long long id = 0;
  std::optional<ContextScope> current;
  if (stream.per_thread) current.emplace(device_);
  return MEMX_CALL(device_, cuStreamGetId, stream.handle, &id) == CUDA_SUCCESS && id == stream.id;
}

void StreamTable::forget_handle(Slot slot) {
  Known& one = known(streams_[slot].handle);
  if (one.handle && one.slot == slot) one = {};
}

Event* StreamTable::new_event(Lock& lock) noexcept {
  if (free_events_.empty()) {
    CUevent handle = nullptr;
    const CUresult result = lock.drive([&] {
      ContextScope current(device_);
      return MEMX_CALL(device_, cuEventCreate, &handle, unsigned(CU_EVENT_DISABLE_TIMING));
    });
    if (result != CUDA_SUCCESS) return nullptr;
    try {
      free_events_.reserve(events_.size() + 1);  // so that letting go never fails
      events_.push_back({handle, 1});
      return &events_.back();
    } catch (...) {
      lock.drive([&] { return MEMX_CALL(device_, cuEventDestroy, handle); });
      return nullptr;
    }
  }
  Event* event = free_events_.back();
  free_events_.pop_back();
  event->users = 1;
  return event;
}

void StreamTable::let_go(Event* event) {
  if (--event->users == 0) free_events_.push_back(event);
}

// Records an event for what is queued on the stream by now.
CUresult StreamTable::record(Lock& lock, Slot slot, Event*& out) noexcept {
  out = nullptr;
  Event* event = new_event(lock);
  if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
  const Identity stream = identity(slot);
  const bool late = streams_[slot].late;
  // Asking is harmless; recording would break the captures that it concerns.
  bool context = slot == kContext, gone = false;
  CUresult result = CUDA_SUCCESS;
  if (!context && late && may_capture()) {
    if (lock.drive([&] { return is_capturing(stream.handle); }))
      result = slot == kLegacy ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (result == CUDA_SUCCESS && slot > kGraph && late) gone = !lock.drive([&] { return is_live(stream); });
  if (gone) {
    forget_handle(slot);
    context = true;  // its work is among the context's
  }
  if (result == CUDA_SUCCESS && context && any_capturing(lock)) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (result == CUDA_SUCCESS) {
    result = lock.drive([&] {
      ContextScope current(device_);
      return context ? MEMX_CALL(device_, cuCtxRecordEvent, device_.context(), event->handle)
                     : MEMX_CALL(device_, cuEventRecord, event->handle, stream.handle);
    });
  }
  if (result != CUDA_SUCCESS) {
    let_go(event);
    return result;
  }
  out = event;
  return CUDA_SUCCESS;
}

void StreamTable::keep(Slot slot, std::uint64_t number, Event* event) {
  Stream& stream = streams_[slot];
  if (number <= stream.completed) return let_go(event);
  stream.recorded = std::max(stream.recorded, number);
  auto at = stream.events.end();
  while (at != stream.events.begin() && std::prev(at)->number > number) --at;
  stream.events.insert(at, {number, event});
  if (!stream.active) activate(slot);
}

Slot StreamTable::target(Lock& lock, Slot slot) noexcept {
  if (slot <= kGraph || !may_capture()) return slot;
  const CUstream handle = streams_[slot].handle;
  GraphWatch::Capture capture;
  if (!lock.drive([&] {
        if (!is_capturing(handle)) return false;
        capture = graphs_.capture_of(handle);
        return true;
      }))
    return slot;
  try {
    for (const Capture& known : captures_)
      if (known.id == capture.id && known.stream == slot) return known.graph;
    if (capture.id) {
      captures_.reserve(captures_.size() + 1);
      const Slot graph = add_graph(slot);
      if (graph == kGraph) return kGraph;
      captures_.push_back({capture.id, slot, graph});
      lock.drive([&] { graphs_.watch(capture.graph, graph); });  // where that fails, nobody says that it is gone
      return graph;
    }
    if (!framework_) return kGraph;
    if (streams_[slot].twin == kNone) {
      const Slot graph = add_graph(slot);
      streams_[slot].twin = graph;
    }
    return streams_[slot].twin;
  } catch (...) {
    return kGraph;
  }
}

Slot StreamTable::add_graph(Slot stream) {
  Slot slot;
  if (spare_.empty()) {
    if (streams_.size() >= Point::kSlots) return kGraph;
    slot = static_cast<Slot>(streams_.size());
    streams_.emplace_back();
  } else {
    slot = spare_.back();
    spare_.pop_back();
  }
  Stream& graph = streams_[slot];
  graph.handle = streams_[stream].handle;
  graph.late = graph.graph = graph.asked = true;
  graph.twin = stream;
  return slot;
}

Point StreamTable::record_now(Lock& lock, Slot slot) noexcept {
  slot = target(lock, slot);
  if (streams_[slot].late) return mark(slot);
  // The number first: whoever records an event for a later one has this one's work before it.
  const std::uint64_t number = mark(slot).number();
  const Identity stream = identity(slot);
  Event* event = nullptr;
  if (lock.drive([&] { return is_live(stream); })) {
    learn(lock, slot);
    try {
      if (record(lock, slot, event) == CUDA_SUCCESS) {
        keep(slot, number, event);
        thin(lock, slot);
        return {slot, number};
      }
    } catch (...) {  // no memory for an event: the context's own point needs none
      if (event) let_go(event);
    }
  }
  return mark(kContext);
}

bool StreamTable::waitable(Lock& lock, PointSet points) {
  bury_graphs();
  for (const Point& point : points) {
    if (complete(point)) continue;
    const std::uint64_t successor = streams_[point.slot()].successor;
    if (is_graph(point.slot()) && !successor) return false;
    const Slot slot = successor ? kContext : point.slot();
    if ((successor ? successor : point.number()) <= streams_[slot].recorded) continue;
    if (slot == kContext ? any_capturing(lock) : capturing(lock, slot)) return false;
  }
  return true;
}

void StreamTable::poll_stream(Lock& lock, Slot slot) {
  while (!streams_[slot].events.empty()) {
    const Recorded first = streams_[slot].events.front();
    ++first.event->users;
    const bool over = lock.drive([&] {
      ContextScope current(device_);
      return MEMX_CALL(device_, cuEventQuery, first.event->handle) == CUDA_SUCCESS;
    });
    let_go(first.event);
    if (!over) return;
    complete_up_to(slot, first.number);
    auto& events = streams_[slot].events;  // others may have looked meanwhile
    auto past = events.begin();
    for (; past != events.end() && past->number <= first.number; ++past) let_go(past->event);
    events.erase(events.begin(), past);
  }
}

bool StreamTable::poll(Lock& lock, bool late) {
  bury_graphs();
  const std::vector<Slot> slots = active_;
  for (Slot slot : slots) {
    if (late && streams_[slot].late) catch_up(lock, slot);
    poll_stream(lock, slot);
  }
  std::erase_if(active_, [&](Slot slot) {
    Stream& stream = streams_[slot];
    stream.active = stream.issued > stream.completed || !stream.events.empty();
    return !stream.active;
  });
  return !news_.empty();
}

// Finds out about points that have no event: all are over, or one is recorded for them.
void StreamTable::catch_up(Lock& lock, Slot slot) {
  if (slot == kContext || is_graph(slot) || streams_[slot].successor || streams_[slot].issued <= streams_[slot].completed) return;
  if (capturing(lock, slot)) return;  // a query would break it; one of a blocking stream, if this is the legacy stream
  const std::uint64_t number = streams_[slot].issued;
  const Identity stream = identity(slot);
  bool live = true;
  const bool over = lock.drive([&] {
    live = slot == kLegacy || is_live(stream);
    ContextScope current(device_);
    return live && MEMX_CALL(device_, cuStreamQuery, stream.handle) == CUDA_SUCCESS;
  });
  if (!live) {
    forget_handle(slot);
    bury(slot);
  }
  if (over) {
    streams_[slot].recorded = std::max(streams_[slot].recorded, number);
    complete_up_to(slot, number);
  } else if (live && streams_[slot].issued > streams_[slot].recorded) {
    if (Event* event = event_for(lock, {slot, streams_[slot].issued})) let_go(event);
  }
}

// Bounds what one stream holds: an event in the middle can go, a later one stands for its point.
void StreamTable::thin(Lock& lock, Slot slot) {
  constexpr std::size_t kMany = 64;
  if (streams_[slot].events.size() <= kMany) return;
  poll_stream(lock, slot);
  auto& events = streams_[slot].events;
  if (events.size() <= kMany) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i % 2 == 1 || i + 1 == events.size())
      events[kept++] = events[i];
    else
      let_go(events[i].event);
  }
  events.resize(kept);
}

bool StreamTable::make_explicit(Lock& lock, const PointSet& points, Slot slot) {
  bool implicit = false;
  for (const Point& point : points) implicit |= !ordered(point, slot) && !is_graph(point.slot());
  if (!implicit) return true;
  if (capturing(lock, slot)) return false;
  const std::uint64_t number = mark(slot).number();
  Event* event = nullptr;
  if (record(lock, slot, event) != CUDA_SUCCESS) return false;
  keep(slot, number, event);
  return true;
}

bool StreamTable::insert_waits(Lock& lock, PointSet points, Slot slot) {
  if (mode_ != ReuseMode::kMutual || excluded(slot)) return false;
  for (const Point& point : points)
    if (!ordered(point, slot) && (excluded(point.slot()) || point.slot() == kContext || is_graph(point.slot()))) return false;
  return follow(lock, std::move(points), slot);
}

bool StreamTable::follow(Lock& lock, PointSet points, Slot slot) {
  if (excluded(slot)) return false;
  for (const Point& point : points) {
    if (ordered(point, slot)) continue;
    Event* event = event_for(lock, point);
    if (!event) {
      if (complete(point)) continue;
      return false;
    }
    const CUstream handle = streams_[slot].handle;
    const CUresult result = lock.drive([&] {
      ContextScope current(device_);
      return MEMX_CALL(device_, cuStreamWaitEvent, handle, event->handle, 0u);
    });
    let_go(event);
    if (result != CUDA_SUCCESS) return false;
    std::uint64_t& edge = streams_[slot].after[point.slot()];
    edge = std::max(edge, point.number());
  }
  return true;
}

bool StreamTable::capturing(Lock& lock, Slot slot) {
  if (slot == kContext || is_graph(slot) || !may_capture()) return false;
  const CUstream handle = streams_[slot].handle;
  return lock.drive([&] { return is_capturing(handle); });
}

bool StreamTable::any_capturing(Lock& lock) noexcept {
  if (!may_capture()) return false;
  if (lock.drive([&] { return is_capturing(nullptr); })) return true;
  for (Slot slot = kGraph + 1; slot < streams_.size(); ++slot)
    if (!is_graph(slot) && capturing(lock, slot)) return true;
  return false;
}

bool StreamTable::is_capturing(CUstream handle) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = MEMX_CALL(device_, cuStreamIsCapturing, handle, &status);
  // The legacy stream cannot be asked while a blocking stream captures: that is an answer too.
  return status != CU_STREAM_CAPTURE_STATUS_NONE || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

Event* StreamTable::event_for(Lock& lock, const Point& point) {
  Slot slot = point.slot();
  if (complete(point)) return nullptr;
  if (is_graph(slot)) bury_graphs();
  if (const std::uint64_t successor = streams_[slot].successor) return event_for(lock, {kContext, successor});
  if (is_graph(slot)) return nullptr;
  for (const Recorded& recorded : streams_[slot].events)
    if (recorded.number >= point.number()) {
      ++recorded.event->users;
      return recorded.event;
    }
  const std::uint64_t number = streams_[slot].issued;
  Event* event = nullptr;
  if (record(lock, slot, event) != CUDA_SUCCESS) return nullptr;
  ++event->users;
  keep(slot, number, event);
  return event;
}

}  // namespace memx
