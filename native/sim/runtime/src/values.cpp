#include "values.h"

#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

namespace memxrt {

namespace {

struct Write {
  size_t bytes = 0;
  uint64_t kernels = 0;  // queued before it
  bool whole = true;     // not what another write left of it
  bool known = true;
};

struct Values {
  std::mutex lock;
  uint64_t kernels = 0;
  std::map<uint64_t, Write> writes;  // by address, disjoint
  std::unordered_map<uint64_t, size_t> allocations;
};

Values& values() {
  static auto* instance = new Values;
  return *instance;
}

// The first write that reaches beyond `at`.
std::map<uint64_t, Write>::iterator from(std::map<uint64_t, Write>& writes, uint64_t at) {
  auto next = writes.upper_bound(at);
  if (next == writes.begin()) return next;
  const auto before = std::prev(next);
  return before->first + before->second.bytes > at ? before : next;
}

void make_room(std::map<uint64_t, Write>& writes, uint64_t at, uint64_t end) {
  for (auto it = from(writes, at); it != writes.end() && it->first < end;) {
    const uint64_t start = it->first, stop = start + it->second.bytes;
    Write rest = it->second;
    rest.whole = false;
    it = writes.erase(it);
    if (start < at) {
      rest.bytes = at - start;
      writes.emplace(start, rest);
    }
    if (stop > end) {
      rest.bytes = stop - end;
      it = writes.emplace(end, rest).first;
    }
  }
}

}  // namespace

void kernel_queued() {
  Values& all = values();
  const std::lock_guard guard(all.lock);
  ++all.kernels;
}

void value_written(uint64_t at, size_t bytes, bool known) {
  Values& all = values();
  const std::lock_guard guard(all.lock);
  make_room(all.writes, at, at + bytes);
  all.writes[at] = {bytes, all.kernels, true, known};
}

void memory_given(uint64_t at, size_t bytes) {
  Values& all = values();
  const std::lock_guard guard(all.lock);
  all.allocations[at] = bytes;
}

void memory_taken(uint64_t at) {
  Values& all = values();
  const std::lock_guard guard(all.lock);
  const auto found = all.allocations.find(at);
  if (found == all.allocations.end()) return;
  make_room(all.writes, at, at + found->second);
  all.allocations.erase(found);
}

bool value_unknown(uint64_t at, size_t bytes) {
  Values& all = values();
  const std::lock_guard guard(all.lock);
  const auto found = from(all.writes, at);
  if (found == all.writes.end() || found->first > at || found->first + found->second.bytes < at + bytes)
    return all.kernels > 0;
  const Write& write = found->second;
  if (!write.known) return true;
  return !(write.whole && found->first == at && write.bytes == bytes) && all.kernels > write.kernels;
}

}  // namespace memxrt
