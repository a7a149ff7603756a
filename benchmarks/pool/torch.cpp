// PyTorch's own caching allocator, called as its C++ does: a library for a Python process that has imported torch.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "mix.h"

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

struct Torch {
  std::vector<cudaStream_t> streams;

  void enter() {}
  std::uint64_t allocate(std::uint64_t bytes, unsigned stream) {
    return reinterpret_cast<std::uint64_t>(caching::raw_alloc_with_stream(bytes, streams[stream]));
  }
  void free(std::uint64_t address, std::uint64_t, unsigned) { caching::raw_delete(reinterpret_cast<void*>(address)); }
};

}  // namespace

extern "C" void time_mix(std::uint64_t largest, std::uint64_t live, unsigned threads, unsigned streams,
                         std::uint64_t operations, double* wall_ns, double* cpu_ns) {
  Torch allocator;
  allocator.streams.push_back(nullptr);
  while (allocator.streams.size() < streams) allocator.streams.push_back(c10::cuda::getStreamFromPool().stream());
  const Cost cost = run(allocator, Mix{largest, live, threads, streams, operations});
  *wall_ns = cost.wall_ns;
  *cpu_ns = cost.cpu_ns;
}
