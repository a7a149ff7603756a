#include "torch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "torch_errors.h"

namespace memx::torch {
namespace {

constexpr int kMaxDevices = 64;
using PoolId = std::pair<unsigned long long, unsigned long long>;
using Filter = std::function<bool(CUstream)>;

// A memory pool that allocations on some streams or threads go to: a MemPool in use, or a graph being captured.
struct Route {
  int device;
  PoolId pool;
  std::uint32_t tag;  // the pool's
  Filter takes;
};

struct State {
  std::mutex lock;  // of what follows, but for the atomics
  Config config;
  bool record = false;
  std::array<std::atomic<Resource*>, kMaxDevices> resources{};
  std::atomic<int> routes_open{0};
  std::vector<Route> routes;
};

State& state() {
  static State* made = new State;  // outlives every static destructor
  return *made;
}

std::string pool_tag(const PoolId& pool) {
  return "torch pool " + std::to_string(pool.first) + ":" + std::to_string(pool.second);
}

std::uint32_t tag_for(int device, CUstream stream) {
  State& s = state();
  if (s.routes_open.load(std::memory_order_acquire) == 0) return 0;
  std::vector<Route> routes;
  {
    std::lock_guard<std::mutex> guard(s.lock);
    routes = s.routes;
  }
  for (auto route = routes.rbegin(); route != routes.rend(); ++route)
    if (route->device == device && route->takes(stream)) return route->tag;
  return 0;
}

Resource* owner(std::uint64_t address) {
  for (auto& slot : state().resources)
    if (Resource* resource = slot.load(std::memory_order_acquire); resource && resource->covers(address)) return resource;
  return nullptr;
}

// What PyTorch's own message has: programs look for its beginning, people for the numbers.
std::string out_of_memory_text(Resource& resource, int device, std::size_t bytes, const char* why) {
  std::string text = "CUDA out of memory. Tried to allocate " + format_bytes(bytes) + ". GPU " + std::to_string(device) +
                     " has a total capacity of " + format_bytes(resource.device().total_bytes()) + ". memx: ";
  return text + why;
}

void* allocate(std::size_t bytes, int device, CUstream stream) {
  if (bytes == 0) return nullptr;
  Resource& from = resource(device);
  try {
    return reinterpret_cast<void*>(from.allocate(bytes, stream, 0, Placement::kPreferDevice, tag_for(device, stream)));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kOutOfMemory) throw;
    throw_out_of_memory(out_of_memory_text(from, device, bytes, error.what()));
  }
}

// A tensor's destructor must not throw: what goes wrong is said, and the memory stays.
template <class Body>
void quietly(const char* doing, Body body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memx: %s failed: %s\n", doing, error.what());
  }
}

}  // namespace

void configure(const Config& config) {
  std::lock_guard<std::mutex> guard(state().lock);
  state().config = config;
}

void record_from_birth() {
  std::lock_guard<std::mutex> guard(state().lock);
  state().record = true;
}

Resource& resource(int device) {
  State& s = state();
  if (device < 0 || device >= kMaxDevices)
    throw Error(ErrorKind::kInvalidValue, "device " + std::to_string(device) + " is out of range");
  if (Resource* made = s.resources[static_cast<unsigned>(device)].load(std::memory_order_acquire)) return *made;
  std::lock_guard<std::mutex> guard(s.lock);
  auto& slot = s.resources[static_cast<unsigned>(device)];
  if (Resource* made = slot.load(std::memory_order_acquire)) return *made;
  Config config = s.config;
  config.device = device;
  auto made = std::make_unique<Resource>(config);
  if (s.record) made->record_events(true);
  for (int other = 0; other < kMaxDevices; ++other)
    if (Resource* peer = s.resources[static_cast<unsigned>(other)].load(std::memory_order_acquire)) {
      if (made->can_be_reached_from(other)) made->enable_peer(other);
      if (peer->can_be_reached_from(device)) peer->enable_peer(device);
    }
  slot.store(made.get(), std::memory_order_release);
  return *made.release();
}

std::map<int, Resource*> resources() {
  std::map<int, Resource*> out;
  for (int device = 0; device < kMaxDevices; ++device)
    if (Resource* made = state().resources[static_cast<unsigned>(device)].load(std::memory_order_acquire)) out[device] = made;
  return out;
}

}  // namespace memx::torch

using namespace memx;
using namespace memx::torch;

#pragma GCC visibility push(default)
extern "C" {

void* memx_torch_malloc(std::size_t bytes, int device, CUstream stream) { return allocate(bytes, device, stream); }

// For PyTorch's own allocator, which asks for segments: null makes it give its cached ones back and ask again.
void* memx_torch_malloc_segment(std::size_t bytes, int device, CUstream stream) {
  try {
    return bytes ? reinterpret_cast<void*>(resource(device).allocate(bytes, stream, 0, Placement::kPreferDevice, 0)) : nullptr;
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kOutOfMemory) throw;
    return nullptr;
  }
}

void memx_torch_free(void* pointer, std::size_t, int, CUstream) {
  if (!pointer) return;
  quietly("freeing a tensor's memory", [&] {
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (Resource* resource = owner(address))
      resource->free(address);
    else
      throw Error(ErrorKind::kInvalidState, "the pointer is not memx's");
  });
}

void memx_torch_empty_cache() {
  for (auto& [device, resource] : resources()) resource->trim(0);
}

void memx_torch_memory_fraction(double fraction, int device) {
  Resource& limited = resource(device);
  limited.set_device_limit(static_cast<std::uint64_t>(fraction * static_cast<double>(limited.device().total_bytes())));
}

void* memx_torch_base_allocation(void* pointer, std::size_t* bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  Resource* from = owner(address);
  const auto [begin, size] = from ? from->extent_of(address) : std::pair<std::uint64_t, std::uint64_t>{address, 0};
  if (bytes) *bytes = size;
  return reinterpret_cast<void*>(begin);
}

void memx_torch_record_stream(void* pointer, CUstream stream) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  Resource* from = owner(address);
  if (!from) return;  // of another allocator, or none
  if (const std::uint64_t begin = from->extent_of(address).first) from->record_stream(begin, stream);
}

void memx_torch_begin_pool(int device, PoolId pool, Filter takes) {
  Resource& from = resource(device);
  const std::uint32_t tag = from.tag_id(pool_tag(pool));
  from.private_tag(tag);
  from.announce_capture(true);
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  s.routes.push_back({device, pool, tag, std::move(takes)});
  s.routes_open.fetch_add(1, std::memory_order_release);
}

void memx_torch_end_pool(int device, PoolId pool) {
  State& s = state();
  {
    std::lock_guard<std::mutex> guard(s.lock);
    auto route = std::find_if(s.routes.rbegin(), s.routes.rend(),
                              [&](const Route& r) { return r.device == device && r.pool == pool; });
    if (route == s.routes.rend()) return;
    s.routes.erase(std::next(route).base());
    s.routes_open.fetch_sub(1, std::memory_order_release);
  }
  resource(device).announce_capture(false);
}

void memx_torch_release_pool(int device, PoolId pool) {
  quietly("releasing a memory pool", [&] {
    Resource& from = resource(device);
    if (from.forked()) return;  // the parent's pool
    from.retire_tag(from.tag_id(pool_tag(pool)));
  });
}

}  // extern "C"
#pragma GCC visibility pop

std::map<std::string, std::uint64_t> memx::torch::hooks() {
  auto at = [](auto* function) { return reinterpret_cast<std::uint64_t>(function); };
  return {{"set_reset_fn", at(&memx_torch_empty_cache)},
          {"set_memory_fraction_fn", at(&memx_torch_memory_fraction)},
          {"set_base_alloc_fn", at(&memx_torch_base_allocation)},
          {"set_record_stream_fn", at(&memx_torch_record_stream)},
          {"set_begin_allocate_to_pool", at(&memx_torch_begin_pool)},
          {"set_end_allocate_to_pool_fn", at(&memx_torch_end_pool)},
          {"set_release_pool", at(&memx_torch_release_pool)}};
}
