#include "views.h"

#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "memx_sim.h"
#include "state.h"

namespace memxsim {

namespace {

struct View {
  void* mapped = nullptr;  // null where the memory is the host's anyway
  uint64_t bytes = 0;
  std::vector<PhysRef> kept;  // nobody else is given these bytes while the view is there
};

std::unordered_multimap<void*, View>& views() {
  static auto* instance = new std::unordered_multimap<void*, View>;
  return *instance;
}

// Extents begin on host pages, so pieces that follow one another at the address can do so in the view.
bool map_pieces(View& view, const std::vector<Region*>& regions, uint64_t va) {
  Store& store = driver().store;
  auto* at = static_cast<char*>(view.mapped);
  char* const end = at + view.bytes;
  for (const Region* region : regions) {
    const Phys& memory = region->phys->behind ? *region->phys->behind : *region->phys;
    const uint64_t skipped = va > region->va ? (va - region->va) & ~(kHostPage - 1) : 0;
    const uint64_t bytes = std::min(round_up(region->bytes - skipped, kHostPage), static_cast<uint64_t>(end - at));
    void* got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, store.file(),
                     static_cast<off_t>(memory.file_offset + skipped));
    if (got == MAP_FAILED) return false;
    at += bytes;
  }
  return true;
}

}  // namespace

CUresult open_view(uint64_t va, uint64_t bytes, void** out) {
  Driver& d = driver();
  if (d.store.accounting_only()) return CUDA_ERROR_NOT_SUPPORTED;
  if (va + bytes < va) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<Region*> regions = d.addresses.covering(va, bytes);
  if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
  View view;
  for (const Region* region : regions) {
    const PhysRef& memory = region->phys->behind ? region->phys->behind : region->phys;
    if (memory->backing == Phys::Backing::foreign) return CUDA_ERROR_NOT_SUPPORTED;
    if (!memory->data) return CUDA_ERROR_INVALID_VALUE;
    view.kept.push_back(memory);
  }
  if (view.kept.front()->backing == Phys::Backing::anonymous) {
    // Allocations of the host have gaps between them: there is one.
    *out = view.kept.front()->data + (va - regions.front()->va);
  } else {
    const uint64_t within = (va - regions.front()->va) % kHostPage;
    view.bytes = round_up(within + bytes, kHostPage);
    view.mapped = mmap(nullptr, view.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (view.mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!map_pieces(view, regions, va)) {
      munmap(view.mapped, view.bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = static_cast<char*>(view.mapped) + within;
  }
  views().emplace(*out, std::move(view));
  return CUDA_SUCCESS;
}

bool close_view(void* address) {
  const auto found = views().find(address);
  if (found == views().end()) return false;
  if (found->second.mapped) munmap(found->second.mapped, found->second.bytes);
  views().erase(found);
  return true;
}

}  // namespace memxsim

extern "C" {

int memxsim_view(uint64_t address, uint64_t bytes, void** out) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (memxsim::g_forked || !memxsim::g_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const memxsim::Lock lock(memxsim::driver().lock);
  return memxsim::open_view(address, bytes, out);
}

int memxsim_end_view(void* view) {
  if (memxsim::g_forked) return CUDA_SUCCESS;
  const memxsim::Lock lock(memxsim::driver().lock);
  return memxsim::close_view(view) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
