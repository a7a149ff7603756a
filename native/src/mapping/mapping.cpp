#include "memx/mapping.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

namespace memx {

void MappingList::push_back(Mapping* mapping) {
  mapping->prev = back_;
  mapping->next = nullptr;
  (back_ ? back_->next : front_) = mapping;
  back_ = mapping;
}

void MappingList::push_front(Mapping* mapping) {
  mapping->next = front_;
  mapping->prev = nullptr;
  (front_ ? front_->prev : back_) = mapping;
  front_ = mapping;
}

void MappingList::remove(Mapping* mapping) {
  (mapping->prev ? mapping->prev->next : front_) = mapping->next;
  (mapping->next ? mapping->next->prev : back_) = mapping->prev;
  mapping->prev = mapping->next = nullptr;
}

void Ranking::move(Mapping* mapping, std::uint64_t rank, std::int32_t priority) {
  if (mapping->rank == rank && mapping->priority == priority) return;
  auto node = by_priority_[mapping->priority].extract(mapping);
  mapping->rank = rank;
  mapping->priority = priority;
  by_priority_[priority].insert(std::move(node));
}

PageTable::PageTable(Device& device, AddressSpace& space, Physical& physical, bool ranked)
    : device_(device), space_(space), physical_(physical), page_shift_(static_cast<unsigned>(std::countr_zero(space.page_bytes()))), pages_(space.pages()),
      ranked_(ranked) {
  set_access();
}

PageTable::~PageTable() {
  for (MappingList* list : {&live_[0], &live_[1], &idle_[0], &idle_[1], &kept_, &stuck_})
    while (Mapping* mapping = list->front()) {
      if (unmap_pages(mapping) == CUDA_SUCCESS) {
        physical_.put(forget(mapping));
        continue;
      }
      list->remove(mapping);  // the driver refuses (a dead context): the process gives it back
      delete mapping;
    }
}

CUresult PageTable::allow(std::uint64_t first, std::uint64_t pages, bool host) {
  return MEMX_CALL(device_, cuMemSetAccess, address(first), std::size_t(pages * space_.page_bytes()),
                   static_cast<const CUmemAccessDesc*>(access_.data()), access_.size() - (host ? 0 : 1));
}

// Who may reach a mapping: the device, its peers and, last, the CPU for host pages.
void PageTable::set_access() {
  access_.clear();
  auto grant = [&](CUmemLocation location) { access_.push_back({location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}); };
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device_.ordinal();
  grant(location);
  for (int peer : peers_) {
    location.id = peer;
    grant(location);
  }
  grant(physical_.properties(Tier::kHost).location);
}

PageTable::Failure PageTable::add_peer(Lock& lock, int peer) {
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return {};
  peers_.push_back(peer);
  set_access();
  Failure failure;
  failure.call = Call::cuMemSetAccess;
  std::vector<const Mapping*> mappings;  // which only those past the gate take away
  for (const MappingList* list : {&live_[0], &live_[1], &idle_[0], &idle_[1], &kept_})
    for (const Mapping* mapping = list->front(); mapping; mapping = mapping->next) mappings.push_back(mapping);
  lock.drive([&] {
    for (const Mapping* mapping : mappings)
      if (!failure) failure.result = allow(mapping->first, mapping->pages(), mapping->handle.tier == Tier::kHost);
  });
  if (failure) {  // what was granted already is more than needed, and does no harm
    peers_.pop_back();
    set_access();
  }
  return failure;
}

CUresult PageTable::unmap_pages(const Mapping* mapping) {
  return MEMX_CALL(device_, cuMemUnmap, address(mapping->first), std::size_t(bytes(mapping)));
}

PageTable::Failure PageTable::map(Lock& lock, std::uint64_t first, std::vector<Handle>& handles) {
  std::vector<std::unique_ptr<Mapping>> made;
  made.reserve(handles.size());
  for (std::uint64_t i = 0, page = first; i < handles.size(); ++i) {
    made.push_back(std::make_unique<Mapping>());
    made.back()->handle = handles[i];
    made.back()->first = page;
    page += made.back()->pages();
  }
  Failure failure;
  std::size_t mapped = 0;
  std::vector<bool> undone;
  lock.drive([&] {
    for (; mapped < made.size(); ++mapped) {
      const Mapping& mapping = *made[mapped];
      failure.result = MEMX_CALL(device_, cuMemMap, address(mapping.first), std::size_t(bytes(&mapping)), std::size_t(0),
                                 CUmemGenericAllocationHandle(mapping.handle.value), 0ull);
      if (failure) break;
    }
    if (!failure) {
      failure.call = Call::cuMemSetAccess;
      const bool host = !handles.empty() && handles.front().tier == Tier::kHost;
      failure.result = allow(first, made.empty() ? 0 : made.back()->end() - first, host);
    }
    if (failure)
      for (std::size_t i = 0; i < mapped; ++i) undone.push_back(unmap_pages(made[i].get()) == CUDA_SUCCESS);
  });
  if (failure) {
    std::vector<Handle> unused(handles.begin() + static_cast<std::ptrdiff_t>(mapped), handles.end());
    for (std::size_t i = 0; i < mapped; ++i) {
      if (undone[i]) {
        unused.push_back(made[i]->handle);
        continue;
      }
      Mapping* mapping = made[i].release();
      mapping->stuck = true;
      mapping->handle.fresh = false;
      stuck_.push_back(mapping);
      appear(mapping);
    }
    handles.swap(unused);
    return failure;
  }
  for (auto& owned : made) {
    Mapping* mapping = owned.release();
    mapping->handle.fresh = false;
    appear(mapping);
    mapped_bytes_[static_cast<int>(mapping->handle.tier)] += bytes(mapping);
    enlist(mapping);
  }
  handles.clear();
  return failure;
}

void PageTable::appear(Mapping* mapping) {
  for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
    pages_[page].mapping = mapping;
    ++pages_[page].generation;
  }
}

PageTable::Failure PageTable::unmap(Lock& lock, Mapping* mapping) {
  Handle handle;
  Failure failure = detach(lock, mapping, handle);
  if (!failure) physical_.put(handle);
  return failure;
}

PageTable::Failure PageTable::unmap(Lock& lock, std::vector<Mapping*>& mappings) {
  Failure failure{CUDA_SUCCESS, Call::cuMemUnmap};
  std::sort(mappings.begin(), mappings.end(), [](const Mapping* a, const Mapping* b) { return a->first < b->first; });
  for (Mapping* mapping : mappings) mapping->busy = true;
  std::vector<bool> unmapped(mappings.size());
  lock.drive([&] {
    for (std::size_t begin = 0, end; begin < mappings.size(); begin = end) {
      std::uint64_t total = 0;
      for (end = begin; end < mappings.size() && (end == begin || mappings[end]->first == mappings[end - 1]->end()); ++end)
        total += bytes(mappings[end]);
      const CUresult all = MEMX_CALL(device_, cuMemUnmap, address(mappings[begin]->first), std::size_t(total));
      for (std::size_t i = begin; i < end; ++i) {
        const CUresult one = all == CUDA_SUCCESS || end - begin == 1 ? all : unmap_pages(mappings[i]);
        unmapped[i] = one == CUDA_SUCCESS;
        if (!unmapped[i]) failure.result = one;
      }
    }
  });
  std::vector<Mapping*> left;
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    mappings[i]->busy = false;
    if (unmapped[i])
      physical_.put(forget(mappings[i]));
    else
      left.push_back(mappings[i]);
  }
  mappings.swap(left);
  return failure;
}

PageTable::Failure PageTable::detach(Lock& lock, Mapping* mapping, Handle& out) {
  const bool busy = std::exchange(mapping->busy, true);
  Failure failure{lock.drive([&] { return unmap_pages(mapping); }), Call::cuMemUnmap};
  mapping->busy = busy;
  if (!failure) out = forget(mapping);
  return failure;
}

Handle PageTable::forget(Mapping* mapping) {
  if (mapping->stuck) {
    stuck_.remove(mapping);
  } else {
    delist(mapping);
    mapped_bytes_[static_cast<int>(mapping->handle.tier)] -= bytes(mapping);
  }
  for (std::uint64_t page = mapping->first; page < mapping->end(); ++page) {
    pages_[page].mapping = nullptr;
    ++pages_[page].generation;
  }
  const Handle handle = mapping->handle;
  delete mapping;
  return handle;
}

void PageTable::strand(Mapping* mapping) {
  delist(mapping);
  mapped_bytes_[static_cast<int>(mapping->handle.tier)] -= bytes(mapping);
  mapping->live_bytes = 0;
  mapping->stuck = true;
  stuck_.push_back(mapping);
}

std::uint64_t PageTable::stuck_bytes(Tier tier) const {
  std::uint64_t total = 0;
  for (const Mapping* mapping = stuck_.front(); mapping; mapping = mapping->next)
    if (mapping->handle.tier == tier) total += bytes(mapping);
  return total;
}

bool PageTable::unstick(Lock& lock) {
  std::vector<Mapping*> stuck;
  for (Mapping* mapping = stuck_.front(); mapping; mapping = mapping->next) stuck.push_back(mapping);
  if (!stuck.empty()) unmap(lock, stuck);
  return stuck_.empty();
}

void PageTable::enlist(Mapping* mapping) {
  const int tier = static_cast<int>(mapping->handle.tier);
  if (mapping->live_bytes == 0 && mapping->kept) {
    kept_.push_back(mapping);
  } else if (mapping->live_bytes == 0) {
    idle_[tier].push_back(mapping);
    idle_bytes_[tier] += bytes(mapping);
  } else {
    live_[tier].push_back(mapping);
    if (ranked_ && mapping->handle.tier == Tier::kDevice) ranking_.add(mapping);
    if (mapping->handle.tier == Tier::kDevice) inactive_bytes_ += bytes(mapping) - mapping->live_bytes;
  }
}

void PageTable::delist(Mapping* mapping) {
  const int tier = static_cast<int>(mapping->handle.tier);
  if (mapping->live_bytes == 0 && mapping->kept) {
    kept_.remove(mapping);
  } else if (mapping->live_bytes == 0) {
    idle_[tier].remove(mapping);
    idle_bytes_[tier] -= bytes(mapping);
  } else {
    live_[tier].remove(mapping);
    if (ranked_ && mapping->handle.tier == Tier::kDevice) ranking_.remove(mapping);
    if (mapping->handle.tier == Tier::kDevice) inactive_bytes_ -= bytes(mapping) - mapping->live_bytes;
  }
}

void PageTable::keep(std::uint64_t begin, std::uint64_t end, bool kept) {
  change_live(begin, end, [&](Mapping* mapping, std::uint64_t) {
    delist(mapping);
    mapping->kept = kept;
    enlist(mapping);
  });
}

void PageTable::set_live(Mapping* mapping, std::uint64_t live) {
  if (mapping->stuck) return;
  if ((mapping->live_bytes == 0) == (live == 0)) {
    if (mapping->handle.tier == Tier::kDevice) inactive_bytes_ += mapping->live_bytes - live;
    mapping->live_bytes = live;
  } else {
    delist(mapping);
    mapping->live_bytes = live;
    enlist(mapping);
  }
  peak_inactive_bytes = std::max(peak_inactive_bytes, inactive_bytes_);
}

void PageTable::touch(Mapping* mapping, std::uint64_t rank, std::int32_t priority) {
  if (mapping->live_bytes == 0 || mapping->stuck) return;
  MappingList& list = live_[static_cast<int>(mapping->handle.tier)];
  list.remove(mapping);
  list.push_back(mapping);
  if (ranked_ && mapping->handle.tier == Tier::kDevice) ranking_.move(mapping, rank, priority);
}

template <class Change>
void PageTable::change_live(std::uint64_t begin, std::uint64_t end, Change change) {
  for (std::uint64_t at = begin; at < end;) {
    Mapping* mapping = pages_[at >> page_shift_].mapping;
    const std::uint64_t stop = std::min(end, (mapping ? mapping->end() : (at >> page_shift_) + 1) << page_shift_);
    if (stop < end) __builtin_prefetch(pages_[stop >> page_shift_].mapping);
    if (mapping) change(mapping, stop - at);
    at = stop;
  }
}

void PageTable::add_live(std::uint64_t begin, std::uint64_t end) {
  if (Mapping* mapping = only_mapping(begin, end)) return set_live(mapping, mapping->live_bytes + (end - begin));
  change_live(begin, end, [&](Mapping* mapping, std::uint64_t n) { set_live(mapping, mapping->live_bytes + n); });
}

void PageTable::remove_live(std::uint64_t begin, std::uint64_t end) {
  if (Mapping* mapping = only_mapping(begin, end)) return set_live(mapping, mapping->live_bytes - (end - begin));
  change_live(begin, end, [&](Mapping* mapping, std::uint64_t n) { set_live(mapping, mapping->live_bytes - n); });
}

}  // namespace memx
