// What a hit costs besides time: in a framework's resource no driver call and no heap allocation, and a number of looks
// at free blocks that does not grow with the number of live ones.
#include <memx_sim.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "memx/resource.h"
#include "require.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

struct Buffer {
  std::uint64_t address;
  CUstream stream;
};

std::uint64_t all_calls(const memx::Statistics& statistics) {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : statistics.driver_calls) sum += count;
  return sum;
}

// Probes for an allocation.
double exchange(memx::Resource& resource, const std::vector<CUstream>& streams, std::size_t live) {
  std::mt19937_64 random(live);
  std::vector<Buffer> buffers;
  auto fill = [&](Buffer& buffer) {
    const std::uint64_t power = 1ull << random() % 17;
    buffer.stream = streams[random() % streams.size()];
    buffer.address = resource.allocate(power + random() % power, buffer.stream, 0, memx::Placement::kDevice, 0);
  };
  auto run = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Buffer& buffer = buffers[random() % live];
      resource.free(buffer.address, buffer.stream);
      fill(buffer);
    }
  };
  buffers.resize(live);
  for (Buffer& buffer : buffers) fill(buffer);
  // Room for the extremes of a random walk, so that what follows are hits.
  std::vector<Buffer> spare(4 * live);
  for (Buffer& buffer : spare) fill(buffer);
  for (Buffer& buffer : spare) resource.free(buffer.address, buffer.stream);
  run(20 * live);
  const memx::Statistics before = resource.statistics();
  const std::uint64_t heap = allocations;
  constexpr std::size_t kRounds = 20000;
  run(kRounds);
  REQUIRE(allocations == heap);
  const memx::Statistics after = resource.statistics();
  const std::uint64_t hits = after.reuse_hits - before.reuse_hits;
  REQUIRE(hits == kRounds);
  REQUIRE(all_calls(after) == all_calls(before));

  for (Buffer& buffer : buffers) resource.free(buffer.address, buffer.stream);
  resource.check();
  return static_cast<double>(after.search_probes - before.search_probes) / kRounds;
}

}  // namespace

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main() {
  memxsim_config simulated = {};
  simulated.device_bytes = 64ull << 30;
  simulated.host_bytes = 1 << 20;
  simulated.page_bytes = 2 << 20;
  simulated.devices = 1;
  simulated.accounting_only = 1;
  REQUIRE(memxsim_configure(&simulated) == 0);
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CUstream stream;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  double probes[2];
  for (int many = 0; many < 2; ++many) {
    memx::Config config;
    config.device_limit = 64ull << 30;
    config.oversubscribe = false;
    config.framework = true;
    memx::Resource resource(config);
    probes[many] = exchange(resource, {nullptr, stream}, many ? 30000 : 300);
    std::printf("%.2f probes an allocation\n", probes[many]);
  }
  REQUIRE(probes[1] < 2 * probes[0] + 1);
  REQUIRE(cuStreamDestroy(stream) == CUDA_SUCCESS);
  return 0;
}
