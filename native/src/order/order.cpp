// What is ordered before what, by what memx knows already.
#include "memx/order.h"

#include <algorithm>

namespace memx {

bool StreamTable::outstanding() const {
  if (!news_.empty()) return true;
  for (Slot slot : active_)
    if (streams_[slot].issued > streams_[slot].completed) return true;
  return false;
}

void StreamTable::activate(Slot slot) noexcept {
  try {
    active_.push_back(slot);
    streams_[slot].active = true;
  } catch (...) {  // only a hint for those who poll
  }
}

bool StreamTable::complete(const PointSet& points) const {
  for (const Point& point : points)
    if (!complete(point)) return false;
  return true;
}

void StreamTable::complete_up_to(Slot slot, std::uint64_t number) {
  Stream& stream = streams_[slot];
  if (stream.completed >= number) return;
  stream.completed = number;
  if (!stream.advanced) news_.push_back(slot);
  stream.advanced = true;
  if (slot == kContext)
    std::erase_if(buried_, [&](Slot gone) {
      if (streams_[gone].successor > number) return false;
      streams_[gone].successor = 0;
      complete_up_to(gone, streams_[gone].issued);
      if (is_graph(gone)) spare_.push_back(gone);
      return true;
    });
}

void StreamTable::bury(Slot slot) {
  if (streams_[slot].successor) return;
  buried_.push_back(slot);
  streams_[slot].successor = mark(kContext).number();
}

void StreamTable::bury_graphs() {
  std::vector<Slot> gone;
  graphs_.take_gone(gone);
  for (Slot slot : gone) {
    std::erase_if(captures_, [&](const Capture& capture) { return capture.graph == slot; });
    bury(slot);
  }
}

void StreamTable::take_news(std::vector<Slot>& out) {
  out.swap(news_);
  news_.clear();
  for (Slot slot : out) streams_[slot].advanced = false;
}

bool StreamTable::ordered_by_edge(const Point& point, Slot slot) const {
  const auto& after = streams_[slot].after;
  auto edge = after.find(point.slot());
  return edge != after.end() && point.number() <= edge->second && mode_ != ReuseMode::kStream;
}

bool StreamTable::implicitly_ordered(const Point& point, Slot slot) const {
  if (mode_ == ReuseMode::kStream) return false;
  if (point.slot() == kLegacy) return streams_[slot].blocking;
  return slot == kLegacy && streams_[point.slot()].blocking;
}

bool StreamTable::usable(const PointSet& points, Slot slot, Slot graph) const {
  for (const Point& point : points) {
    if (ordered(point, slot)) continue;
    if (graph != kNone && is_graph(point.slot()) && streams_[point.slot()].twin == slot) continue;
    if (!implicitly_ordered(point, slot) || streams_[point.slot()].excluded || streams_[slot].excluded) return false;
  }
  return true;
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

void StreamTable::settle(const Point& point) { complete_up_to(point.slot(), point.number()); }

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

bool StreamTable::check(std::string* why) const {
  for (Slot slot = 0; slot < streams_.size(); ++slot) {
    const Stream& stream = streams_[slot];
    const char* bad = nullptr;
    if (stream.completed > stream.issued || stream.recorded > stream.issued) bad = "a point that was never issued is over";
    std::uint64_t last = 0;
    for (const Recorded& recorded : stream.events) {
      if (recorded.number < last || recorded.number > stream.issued) bad = "events out of order";
      if (!recorded.event->users) bad = "an event that nobody keeps";
      last = recorded.number;
    }
    if (stream.issued > stream.completed && !stream.active) bad = "outstanding work that nobody polls";
    if (stream.graph && !stream.events.empty()) bad = "an event recorded for a graph";
    if (stream.successor && std::find(buried_.begin(), buried_.end(), slot) == buried_.end()) bad = "gone and forgotten";
    if (bad) {
      *why = std::string(bad) + " on " + name(slot);
      return false;
    }
  }
  return true;
}

}  // namespace memx
