// A memx resource made for a framework, on the simulated device without contents.
//   memx SIMULATED_DRIVER LARGEST LIVE THREADS STREAMS OPERATIONS
#include <dlfcn.h>

#include "memx/resource.h"
#include "memx_sim.h"
#include "mix.h"

namespace {

constexpr std::uint64_t kDevice = 1ull << 40;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Memx {
  memx::Resource resource;
  std::vector<CUstream> streams;
  CUcontext context;
  decltype(&cuCtxSetCurrent) set_current;

  void enter() { set_current(context); }
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) {
    return resource.allocate(bytes, streams[stream], 0, memx::Placement::kDevice, 0);
  }
  void free(std::uint64_t address, std::uint64_t, unsigned stream) { resource.free(address, streams[stream]); }
};

}  // namespace

int main(int argc, char** argv) {
  const Mix mix = mix_of(argc, argv, 2);
  void* driver = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  require(driver, "the simulated driver cannot be opened");
#define FUNCTION(name) reinterpret_cast<decltype(&name)>(dlsym(driver, #name))
  memxsim_config simulated = {};
  simulated.device_bytes = kDevice;
  simulated.host_bytes = 1 << 30;
  simulated.page_bytes = 2 << 20;
  simulated.devices = 1;
  simulated.accounting_only = 1;
  require(FUNCTION(memxsim_configure)(&simulated) == 0, "the simulated driver cannot be configured");
  FUNCTION(cuInit)(0);
  CUcontext context;
  require(FUNCTION(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS, "no context");
  auto set_current = reinterpret_cast<decltype(&cuCtxSetCurrent)>(dlsym(driver, "cuCtxSetCurrent"));
  set_current(context);
  memx::Config config;
  config.device_limit = kDevice;
  config.oversubscribe = false;
  config.framework = true;
  Memx allocator{memx::Resource(config), std::vector<CUstream>(mix.streams), context, set_current};
  for (unsigned i = 1; i < mix.streams; ++i)
    require(FUNCTION(cuStreamCreate)(&allocator.streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "no stream");
  const Cost cost = run(allocator, mix);
  const memx::Statistics s = allocator.resource.statistics();
  std::printf("{\"wall_ns\": %.1f, \"cpu_ns\": %.1f, \"reserved\": %llu, \"allocated\": %llu, \"probes\": %.2f}\n", cost.wall_ns,
              cost.cpu_ns, static_cast<unsigned long long>(s.reserved.peak),
              static_cast<unsigned long long>(s.all.allocated.peak),
              static_cast<double>(s.search_probes) / static_cast<double>(s.all.blocks.gained));
}
