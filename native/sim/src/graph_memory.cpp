#include "graph_memory.h"

#include <algorithm>
#include <map>

#include "graph.h"
#include "state.h"

namespace memxsim {

namespace {

// What a device keeps for graphs. Memory comes back to it when it is freed, and to the device when it is trimmed.
struct Reserve {
  GraphMemoryUse use;
  std::multimap<uint64_t, PhysRef> idle;
};

Reserve& reserve_of(int device) {
  static auto* reserves = new std::array<Reserve, kMaxDevices>;
  return (*reserves)[static_cast<size_t>(device)];
}

PhysRef take_piece(int device, uint64_t bytes) {
  Reserve& reserve = reserve_of(device);
  PhysRef piece;
  if (const auto idle = reserve.idle.find(bytes); idle != reserve.idle.end()) {
    piece = std::move(idle->second);
    reserve.idle.erase(idle);
  } else {
    Store& store = driver().store;
    piece = store.create(device, bytes);
    if (!piece && !reserve.idle.empty()) {
      trim_graph_memory(device);
      piece = store.create(device, bytes);
    }
    if (!piece) return nullptr;
    reserve.use.reserved += bytes;
    reserve.use.reserved_high = std::max(reserve.use.reserved_high, reserve.use.reserved);
  }
  reserve.use.used += bytes;
  reserve.use.used_high = std::max(reserve.use.used_high, reserve.use.used);
  return piece;
}

void give_piece(int device, PhysRef piece) {
  Reserve& reserve = reserve_of(device);
  reserve.use.used -= piece->bytes;
  reserve.idle.emplace(piece->bytes, std::move(piece));
}

bool back(GraphAllocation& allocation) {
  Phys& phys = *allocation.region->phys;
  phys.behind = take_piece(allocation.device, allocation.bytes);
  if (!phys.behind) return false;
  phys.data = phys.behind->data;
  return true;
}

void unback(GraphAllocation& allocation) {
  Phys& phys = *allocation.region->phys;
  if (!phys.behind) return;
  phys.data = nullptr;
  give_piece(allocation.device, std::move(phys.behind));
}

void end_life(GraphAllocation& allocation, const AccessRecord& by) {
  allocation.region->over = by;
  allocation.live.reset();
}

}  // namespace

GraphAllocation::~GraphAllocation() {
  if (!region) return;
  unback(*this);
  driver().addresses.remove(va);
  driver().addresses.give_device_va(va);
}

bool GraphAllocation::freed_by_own_graph() const {
  return std::find(freed_by.begin(), freed_by.end(), graph_id) != freed_by.end();
}

GraphAllocationRef make_graph_allocation(Context& context, uint64_t graph_id, uint64_t bytes, int device,
                                         const std::array<uint8_t, kMaxDevices>& access) {
  AddressSpace& addresses = driver().addresses;
  const uint64_t va = addresses.take_device_va(bytes);
  if (!va) return nullptr;
  auto made = std::make_shared<GraphAllocation>();
  made->va = va;
  made->bytes = bytes;
  made->device = device;
  made->graph_id = graph_id;
  made->access = access;
  Region region;
  region.va = va;
  region.bytes = bytes;
  region.kind = Region::Kind::graph;
  region.phys = std::make_shared<Phys>();
  region.phys->location = device;
  region.phys->bytes = bytes;
  region.phys->backing = Phys::Backing::borrowed;
  region.context = &context;
  region.graph_memory = made.get();
  region.over.emplace();
  region.over->by.name = "never allocated";
  made->region = &addresses.add(std::move(region));
  return made;
}

GraphAllocate::GraphAllocate(GraphAllocationRef of) : Work("cuMemAllocAsync"), allocation(std::move(of)) {
  operands.push_back({allocation->va, allocation->bytes, AccessKind::write});
}

void GraphAllocate::completed(Queue&) const {
  --allocation->allocating;
  if (allocation->overtaken) {
    --allocation->overtaken;
  } else if (allocation->region) {
    allocation->region->device_access = allocation->access;
  }
}

GraphFree::GraphFree(GraphAllocationRef of) : Work("cuMemFreeAsync"), allocation(std::move(of)) {
  operands.push_back({allocation->va, allocation->bytes, AccessKind::write});
}

void GraphFree::completed(Queue&) const {
  if (!allocation->region) return;
  allocation->region->device_access.fill(kNoAccess);
  if (allocation->allocating == 0) unback(*allocation);
}

GraphAllocationRef allocation_to_free(uint64_t va, uint64_t graph_id) {
  const Region* region = driver().addresses.starting_at(va);
  if (!region || !region->graph_memory) return nullptr;
  GraphAllocation& allocation = *region->graph_memory;
  const auto& by = allocation.freed_by;
  if (std::find(by.begin(), by.end(), graph_id) != by.end()) return nullptr;
  if (graph_id == allocation.graph_id ? !by.empty() : allocation.freed_by_own_graph()) return nullptr;
  return allocation.shared_from_this();
}

CUresult begin_graph_memory(const GraphExec& exec, Queue& queue) {
  std::vector<GraphAllocation*> own, backed;
  for (const GraphExec::Step& step : exec.steps) {
    if (step.allocates) {
      const bool usable = step.allocates->region && (!step.allocates->live || exec.frees_before_launch);
      if (!usable) return CUDA_ERROR_INVALID_VALUE;
      own.push_back(step.allocates.get());
    }
    if (step.frees && !step.frees->live && std::find(own.begin(), own.end(), step.frees.get()) == own.end())
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (GraphAllocation* allocation : own) {
    if (allocation->region->phys->behind) continue;
    if (back(*allocation)) {
      backed.push_back(allocation);
      continue;
    }
    for (GraphAllocation* undone : backed) unback(*undone);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (GraphAllocation* allocation : own) {
    if (!allocation->live) continue;
    const auto free = std::make_shared<GraphFree>(allocation->shared_from_this());
    free_queued(*allocation, enqueue(queue, free));
  }
  return CUDA_SUCCESS;
}

void allocation_queued(GraphAllocation& allocation, std::vector<Point>& waits) {
  allocation.live = allocation.shared_from_this();
  allocation.region->over.reset();
  ++allocation.allocating;
  // The oracle is not told: who frees on another stream must order the next launch after it.
  if (!is_complete(allocation.freed)) waits.push_back(allocation.freed);
}

void free_queued(GraphAllocation& allocation, const Point& point) {
  allocation.freed = point;
  end_life(allocation, queued_free(point, allocation.va, allocation.bytes));
}

CUresult free_graph_memory(Region& region, Queue& queue) {
  GraphAllocation& allocation = *region.graph_memory;
  if (!allocation.live || allocation.freed_by_own_graph()) return CUDA_ERROR_INVALID_VALUE;
  const GraphAllocationRef keep = allocation.live;
  free_queued(allocation, enqueue(queue, std::make_shared<GraphFree>(keep)));
  return CUDA_SUCCESS;
}

CUresult free_graph_memory_now(Region& region) {
  GraphAllocation& allocation = *region.graph_memory;
  if (!allocation.live || allocation.freed_by_own_graph()) return CUDA_ERROR_INVALID_VALUE;
  const GraphAllocationRef keep = allocation.live;
  driver().oracle.taken_away(region, "cuMemFree");
  region.device_access.fill(kNoAccess);
  allocation.overtaken = allocation.allocating;
  unback(allocation);
  AccessRecord by;
  by.by.name = "cuMemFree";
  by.address = allocation.va;
  by.bytes = allocation.bytes;
  end_life(allocation, by);
  return CUDA_SUCCESS;
}

void forget_graph_allocation(GraphAllocation& allocation) {
  unback(allocation);
  allocation.region = nullptr;
  const GraphAllocationRef last = std::move(allocation.live);
}

GraphMemoryUse& graph_memory_use(int device) { return reserve_of(device).use; }

void trim_graph_memory(int device) {
  Reserve& reserve = reserve_of(device);
  for (const auto& [bytes, piece] : reserve.idle) {
    reserve.use.reserved -= bytes;
    driver().store.retire(*piece);
  }
  reserve.idle.clear();
}

}  // namespace memxsim
