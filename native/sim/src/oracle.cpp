#include "oracle.h"

#include <algorithm>

#include "address.h"
#include "json.h"
#include "state.h"
#include "stream.h"

namespace memxsim {

namespace {

// Owned by the thread's lifetime object in strict mode only; never freed, since exiting threads may still call.
thread_local HostClock* t_host = nullptr;
constexpr size_t kUses = 8;

std::string operation_json(const AccessRecord& access) {
  JsonObject object;
  if (access.by.seq == 0) {
    object.add_raw("stream", "-1");
    object.add_raw("index", "-1");
  } else {
    object.add("stream", access.by.stream_id);
    object.add("index", access.by.index);
  }
  object.add("name", std::string_view(access.by.name));
  object.add("address", access.address);
  object.add("bytes", access.bytes);
  return object.text();
}

}  // namespace

HostClock& Oracle::host() {
  if (!each_thread_) return everyone_;
  if (!t_host) t_host = new HostClock;
  return *t_host;
}

void Oracle::stream_born(Queue& queue) {
  if (!each_thread_ && free_slots_.empty()) reclaim_slots();
  if (!each_thread_ && !free_slots_.empty()) {
    queue.slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    queue.slot = static_cast<Slot>(last_seq_.size());
    last_seq_.push_back(0);
  }
  queue.first_seq = queue.enqueued = queue.completed = last_seq_[queue.slot];
  queue.known = std::make_shared<Clock>();
  queue.host_generation = 0;
}

void Oracle::stream_dies(Queue& queue) {
  last_seq_[queue.slot] = queue.enqueued;
  dying_slots_.push_back(queue.slot);
}

// A slot is used again once host code knows that everything of its last owner is complete: to any later work
// that is as if its new owner had done it before.
void Oracle::reclaim_slots() {
  std::erase_if(dying_slots_, [&](Slot slot) {
    if (everyone_.clock.get(slot) < last_seq_[slot]) return false;
    free_slots_.push_back(slot);
    return true;
  });
}

Clock& Oracle::own(Queue& queue) {
  if (queue.known.use_count() > 1) queue.known = std::make_shared<Clock>(*queue.known);
  return *queue.known;
}

void Oracle::follow_host(Queue& queue) {
  HostClock& known = host();
  if (queue.host_generation == known.generation && queue.host_seen == &known) return;
  queue.host_generation = known.generation;
  queue.host_seen = &known;
  own(queue).join(known.clock);
}

void Oracle::follow(Queue& queue, const Stamp& stamp) {
  // Clocks are joined whole, so who knows an operation knows all that it knew.
  if (!stamp.known || stamp.slot == queue.slot || queue.known->get(stamp.slot) >= stamp.seq) return;
  Clock& clock = own(queue);
  clock.join(*stamp.known);
  clock.raise(stamp.slot, stamp.seq);
}

void Oracle::follow(Queue& queue, const Clock& clock) { own(queue).join(clock); }

Stamp Oracle::stamp(const Queue& queue) const { return {queue.known, queue.slot, queue.enqueued}; }

void Oracle::access(Queue& queue, Region& region, uint64_t offset, uint64_t bytes, const AccessRecord& record) {
  const Operation& by = record.by;
  const Clock& known = *queue.known;
  const auto conflict = [&](const AccessRecord& before) {
    if (before.by.slot == queue.slot || before.by.seq <= known.get(before.by.slot)) return;
    if (!already_reported(by, before.by)) report({"race", before, record});
  };
  Shadow& shadow = region.phys->shadow;
  shadow.access(offset, offset + bytes, record, conflict);
  if (shadow.wants_pruning()) {
    if (each_thread_)
      shadow.prune([](const AccessRecord&) { return false; });
    else
      shadow.prune([&](const AccessRecord& a) { return a.by.seq <= everyone_.clock.get(a.by.slot); });
  }

  UseList& uses = region.uses;
  for (AccessRecord& use : uses)
    if (use.by.slot == by.slot) {
      use = record;
      return;
    }
  if (uses.size() >= kUses && !each_thread_)
    std::erase_if(uses, [&](const AccessRecord& use) { return use.by.seq <= everyone_.clock.get(use.by.slot); });
  uses.push_back(record);
}

void Oracle::host_learns(const Stamp& stamp) {
  if (!stamp.known) return;
  HostClock& known = host();
  if (known.clock.get(stamp.slot) >= stamp.seq) return;
  known.clock.join(*stamp.known);
  known.clock.raise(stamp.slot, stamp.seq);
  ++known.generation;
}

void Oracle::host_learns(const Clock& clock) {
  HostClock& known = host();
  known.clock.join(clock);
  ++known.generation;
}

bool Oracle::host_knows(Slot slot, uint64_t seq) { return host().clock.get(slot) >= seq; }

void Oracle::taken_away(Region& region, const char* function, int device) {
  for (const AccessRecord& use : region.uses) {
    if (device != kEveryDevice && device != use.by.device) continue;
    if (host_knows(use.by.slot, use.by.seq)) continue;
    AccessRecord taker;
    taker.by.name = function;
    taker.address = region.va;
    taker.bytes = region.bytes;
    report({"unmap-under-use", use, taker});
  }
}

void Oracle::outlives(const AccessRecord& end, const AccessRecord& use) {
  if (!already_reported(use.by, end.by)) report({"outside-lifetime", end, use});
}

bool Oracle::already_reported(const Operation& by, const Operation& with) {
  if (reporting_slot_ != by.slot || reporting_seq_ != by.seq) {
    reporting_slot_ = by.slot;
    reporting_seq_ = by.seq;
    reported_.clear();
  }
  const std::pair pair{with.slot, with.seq};
  if (std::find(reported_.begin(), reported_.end(), pair) != reported_.end()) return true;
  reported_.push_back(pair);
  return false;
}

bool Oracle::pending_write(const Region& region, uint64_t offset, uint64_t bytes) {
  bool pending = false;
  region.phys->shadow.writes(offset, offset + bytes, [&](const AccessRecord& write) {
    pending = pending || !host_knows(write.by.slot, write.by.seq);
  });
  return pending;
}

void Oracle::report(Finding finding) {
  ++count_;
  if (findings_.size() < kStored) findings_.push_back(finding);
}

std::string Oracle::json() const {
  JsonArray array;
  for (const Finding& finding : findings_) {
    JsonObject object;
    object.add("kind", std::string_view(finding.kind));
    object.add_raw("first", operation_json(finding.first));
    object.add_raw("second", operation_json(finding.second));
    array.add_raw(object.text());
  }
  return array.text();
}

void Oracle::clear() {
  count_ = 0;
  findings_.clear();
}

}  // namespace memxsim
