#include "memx/order.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace memx {

class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(Device& device) : device_(&device) {}

  CUresult get(EventRef& out) {
    CUevent event = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
      }
    }
    if (!event) {
      CUresult result = MEMX_CALL(*device_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
      if (result != CUDA_SUCCESS) return result;
    }
    out = EventRef(event, [pool = shared_from_this()](CUevent e) { pool->put(e); });
    return CUDA_SUCCESS;
  }
  // The table is going: events still referred to elsewhere are left to the context.
  void close() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!device_->sticky())
      for (CUevent event : free_) MEMX_CALL(*device_, cuEventDestroy, event);
    free_.clear();
    device_ = nullptr;
  }

 private:
  void put(CUevent event) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (device_) free_.push_back(event);
  }
  Device* device_;
  std::mutex mutex_;
  std::vector<CUevent> free_;
};

StreamTable::StreamTable(Device& device, ReuseMode mode, bool framework)
    : device_(device), mode_(mode), pool_(std::make_shared<EventPool>(device)), streams_(3), framework_(framework) {
  streams_[kLegacy].blocking = streams_[kLegacy].late = true;
  streams_[kContext].late = streams_[kGraph].late = streams_[kGraph].graph = true;
}

StreamTable::~StreamTable() {
  streams_.clear();
  pool_->close();
}

Slot StreamTable::slot_of(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return kLegacy;
  const bool lasts = framework_ && handle != CU_STREAM_PER_THREAD;
  if (lasts && known(handle).handle == handle) return known(handle).slot;
  unsigned long long id = 0;
  std::optional<ContextScope> current;
  if (handle == CU_STREAM_PER_THREAD) current.emplace(device_);
  CUresult result = MEMX_CALL(device_, cuStreamGetId, handle, &id);
  if (result != CUDA_SUCCESS) device_.raise(result, Call::cuStreamGetId, "asking for the identity of a stream");
  auto found = by_id_.find(id);
  if (found != by_id_.end()) {
    streams_[found->second].handle = handle;
    if (lasts) known(handle) = {handle, found->second};
    return found->second;
  }
  Stream stream;
  stream.handle = handle;
  stream.id = id;
  stream.per_thread = handle == CU_STREAM_PER_THREAD;
  stream.blocking = stream.asked = stream.per_thread;
  stream.late = lasts;
  Slot slot = static_cast<Slot>(streams_.size());
  streams_.push_back(std::move(stream));
  by_id_.emplace(id, slot);
  if (lasts) {
    learn(slot);
    known(handle) = {handle, slot};
  }
  return slot;
}

void StreamTable::learn(Slot slot) noexcept {
  Stream& stream = streams_[slot];
  if (stream.asked || slot <= kGraph) return;
  unsigned flags = 0;
  if (MEMX_CALL(device_, cuStreamGetFlags, stream.handle, &flags) != CUDA_SUCCESS) return;
  stream.blocking = !(flags & CU_STREAM_NON_BLOCKING);
  stream.asked = true;
}

bool StreamTable::outstanding() const {
  if (news_) return true;
  for (Slot slot : active_)
    if (streams_[slot].issued > streams_[slot].completed) return true;
  return false;
}

Slot StreamTable::slot_or_context(CUstream handle, Slot last_known) noexcept {
  if (last_known <= kGraph) return last_known;
  const Stream& stream = streams_[last_known];
  unsigned long long id = 0;
  if (stream.per_thread) {
    ContextScope current(device_);
    if (MEMX_CALL(device_, cuStreamGetId, CU_STREAM_PER_THREAD, &id) == CUDA_SUCCESS && id == stream.id) return last_known;
    return kContext;
  }
  if (MEMX_CALL(device_, cuStreamGetId, handle, &id) == CUDA_SUCCESS && id == stream.id) return last_known;
  return kContext;
}

bool StreamTable::is_live(Slot slot) noexcept {
  Stream& stream = streams_[slot];
  if (slot_or_context(stream.handle, slot) == slot) return true;
  if (known(stream.handle).slot == slot) known(stream.handle) = {};
  return false;
}

CUresult StreamTable::record(Slot slot, EventRef& event) {
  if (slot > kGraph && streams_[slot].late) {
    if (capturing(slot)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!is_live(slot)) slot = kContext;  // its work is among the context's
  }
  ContextScope current(device_);
  CUresult result = pool_->get(event);
  if (result != CUDA_SUCCESS) return result;
  // Asking is harmless; recording would break the captures that it concerns.
  if (slot == kContext && any_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (slot == kLegacy && capturing(slot)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (slot == kContext) return MEMX_CALL(device_, cuCtxRecordEvent, device_.context(), event.get());
  return MEMX_CALL(device_, cuEventRecord, event.get(), streams_[slot].handle);
}

void StreamTable::keep(Slot slot, EventRef event) {
  Stream& stream = streams_[slot];
  stream.recorded = stream.issued;
  stream.events.push_back({stream.issued, std::move(event)});
  activate(slot);
}

void StreamTable::activate(Slot slot) {
  if (streams_[slot].active) return;
  active_.push_back(slot);
  streams_[slot].active = true;
}

Slot StreamTable::target(Slot slot) noexcept {
  if (slot <= kGraph || !may_capture() || !is_capturing(streams_[slot].handle)) return slot;
  if (!framework_) return kGraph;
  Slot twin = streams_[slot].twin;
  if (twin != kNone) return twin;
  twin = static_cast<Slot>(streams_.size());
  try {
    Stream& graph = streams_.emplace_back();
    graph.handle = streams_[slot].handle;
    graph.late = graph.graph = graph.asked = true;
    graph.twin = slot;
  } catch (...) {
    return kGraph;
  }
  return streams_[slot].twin = twin;
}

Point StreamTable::mark(Slot graph) noexcept {
  try {
    activate(graph);
  } catch (...) {  // only a hint for those who poll
  }
  return {graph, ++streams_[graph].issued};
}

Point StreamTable::now(Slot slot) noexcept {
  slot = target(slot);
  Stream* stream = &streams_[slot];
  if (!stream->late) {
    EventRef event;
    try {
      Slot live = slot_or_context(stream->handle, slot);
      if (live == slot) learn(slot);
      if (live == slot && record(slot, event) == CUDA_SUCCESS) {
        ++stream->issued;
        keep(slot, std::move(event));
        thin(*stream);
        return {slot, stream->issued};
      }
    } catch (...) {  // no memory for an event: the context's own point needs none
    }
    slot = kContext;
  }
  return mark(slot);
}

bool StreamTable::complete(const PointSet& points) const {
  for (const Point& point : points)
    if (!complete(point)) return false;
  return true;
}

bool StreamTable::waitable(const PointSet& points) {
  for (const Point& point : points) {
    if (is_graph(point.slot)) return false;
    if (complete(point) || point.number <= streams_[point.slot].recorded) continue;
    ContextScope current(device_);
    if (point.slot == kContext ? any_capturing() : capturing(point.slot)) return false;
  }
  return true;
}

void StreamTable::poll_stream(Stream& stream) {
  if (stream.events.empty()) return;
  ContextScope current(device_);
  while (!stream.events.empty()) {
    if (MEMX_CALL(device_, cuEventQuery, stream.events.front().event.get()) != CUDA_SUCCESS) break;
    stream.completed = std::max(stream.completed, stream.events.front().number);
    stream.events.pop_front();
    news_ = true;
  }
}

bool StreamTable::poll(bool late) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    const Slot slot = active_[i];
    Stream& stream = streams_[slot];
    if (late && stream.late) catch_up(slot);
    poll_stream(stream);
    stream.active = stream.issued > stream.completed || !stream.events.empty();
    if (stream.active) active_[kept++] = slot;
  }
  active_.resize(kept);
  return std::exchange(news_, false);
}

// Finds out about points that have no event: all are over, or one is recorded for them.
void StreamTable::catch_up(Slot slot) {
  Stream& stream = streams_[slot];
  if (slot == kContext || stream.graph || stream.issued <= stream.completed) return;
  ContextScope current(device_);
  if (capturing(slot)) return;  // a query would break it; one of a blocking stream, if this is the legacy stream
  if (slot != kLegacy && !is_live(slot)) return;
  if (MEMX_CALL(device_, cuStreamQuery, stream.handle) == CUDA_SUCCESS) {
    stream.completed = stream.recorded = stream.issued;
    news_ = true;
  } else if (stream.issued > stream.recorded) {
    event_for({slot, stream.issued});
  }
}

// Bounds what one stream holds: an event in the middle can go, a later one stands for its point.
void StreamTable::thin(Stream& stream) {
  constexpr std::size_t kMany = 64;
  if (stream.events.size() <= kMany) return;
  poll_stream(stream);
  if (stream.events.size() <= kMany) return;
  std::deque<Recorded> kept;
  for (std::size_t i = 0; i < stream.events.size(); ++i)
    if (i % 2 == 1 || i + 1 == stream.events.size()) kept.push_back(std::move(stream.events[i]));
  stream.events.swap(kept);
}

bool StreamTable::ordered(const Point& point, Slot slot) const {
  if (complete(point)) return true;
  if (point.slot == slot) return slot != kContext && !is_graph(slot);
  const auto& after = streams_[slot].after;
  auto edge = after.find(point.slot);
  return edge != after.end() && point.number <= edge->second && mode_ != ReuseMode::kStream;
}

bool StreamTable::implicitly_ordered(const Point& point, Slot slot) const {
  if (mode_ == ReuseMode::kStream) return false;
  if (point.slot == kLegacy) return streams_[slot].blocking;
  return slot == kLegacy && streams_[point.slot].blocking;
}

bool StreamTable::usable(const PointSet& points, Slot slot, Slot graph) const {
  for (const Point& point : points) {
    if (ordered(point, slot)) continue;
    if (graph != kNone && point.slot == graph) continue;
    if (!implicitly_ordered(point, slot) || streams_[point.slot].excluded || streams_[slot].excluded) return false;
  }
  return true;
}

bool StreamTable::make_explicit(const PointSet& points, Slot slot) {
  bool implicit = false;
  for (const Point& point : points) implicit |= !ordered(point, slot) && !is_graph(point.slot);
  if (!implicit) return true;
  EventRef event;
  if (capturing(slot) || record(slot, event) != CUDA_SUCCESS) return false;
  ++streams_[slot].issued;
  keep(slot, std::move(event));
  return true;
}

void StreamTable::prune(PointSet& points, Slot slot) const {
  points.remove_if([&](const Point& point) { return ordered(point, slot); });
}

void StreamTable::prune_complete(PointSet& points) const {
  points.remove_if([&](const Point& point) { return complete(point); });
}

void StreamTable::note_wait(Slot slot, Slot on) {
  if (slot == on || slot == kContext) return;
  Stream& stream = streams_[slot];
  const Stream& other = streams_[on];
  auto raise_to = [&](Slot key, std::uint64_t number) {
    std::uint64_t& edge = stream.after[key];
    edge = std::max(edge, number);
  };
  raise_to(on, other.issued);
  for (const auto& [key, number] : other.after)
    if (key != slot) raise_to(key, number);
}

bool StreamTable::insert_waits(const PointSet& points, Slot slot) {
  if (mode_ != ReuseMode::kMutual || excluded(slot)) return false;
  for (const Point& point : points)
    if (!ordered(point, slot) && (excluded(point.slot) || point.slot == kContext || is_graph(point.slot))) return false;
  ContextScope current(device_);
  for (const Point& point : points) {
    if (ordered(point, slot)) continue;
    EventRef event = event_for(point);
    if (!event) {
      if (complete(point)) continue;
      return false;
    }
    if (MEMX_CALL(device_, cuStreamWaitEvent, streams_[slot].handle, event.get(), 0u) != CUDA_SUCCESS) return false;
    std::uint64_t& edge = streams_[slot].after[point.slot];
    edge = std::max(edge, point.number);
  }
  return true;
}

bool StreamTable::capturing(Slot slot) {
  return slot != kContext && !is_graph(slot) && may_capture() && is_capturing(streams_[slot].handle);
}

bool StreamTable::any_capturing() noexcept {
  if (!may_capture()) return false;
  if (is_capturing(nullptr)) return true;
  for (Slot slot = kGraph + 1; slot < streams_.size(); ++slot)
    if (!is_graph(slot) && is_capturing(streams_[slot].handle)) return true;
  return false;
}

bool StreamTable::is_capturing(CUstream handle) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = MEMX_CALL(device_, cuStreamIsCapturing, handle, &status);
  // The legacy stream cannot be asked while a blocking stream captures: that is an answer too.
  return status != CU_STREAM_CAPTURE_STATUS_NONE || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

EventRef StreamTable::event_for(const Point& point) {
  Stream& stream = streams_[point.slot];
  if (complete(point) || is_graph(point.slot)) return nullptr;
  for (const Recorded& recorded : stream.events)
    if (recorded.number >= point.number) return recorded.event;
  EventRef event;
  if (record(point.slot, event) != CUDA_SUCCESS) return nullptr;
  keep(point.slot, event);
  return event;
}

void StreamTable::settle(const Point& point) {
  Stream& stream = streams_[point.slot];
  if (stream.completed >= point.number) return;
  stream.completed = point.number;
  news_ = true;
}

std::string StreamTable::name(Slot slot) const {
  if (slot == kLegacy) return "the legacy default stream";
  if (slot == kContext) return "the whole context";
  if (is_graph(slot)) return "a captured graph";
  return "stream " + std::to_string(streams_[slot].id);
}

std::size_t StreamTable::pending_events() const {
  std::size_t count = 0;
  for (const Stream& stream : streams_) count += stream.events.size();
  return count;
}

}  // namespace memx
