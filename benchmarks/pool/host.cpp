// malloc and free of whichever library serves them.
//   host LARGEST LIVE THREADS STREAMS OPERATIONS
#include "mix.h"

struct Host {
  void enter() {}
  std::uint64_t allocate(std::uint64_t bytes, unsigned) { return reinterpret_cast<std::uint64_t>(std::malloc(bytes)); }
  void free(std::uint64_t address, std::uint64_t, unsigned) { std::free(reinterpret_cast<void*>(address)); }
};

int main(int argc, char** argv) {
  Host allocator;
  const Cost cost = run(allocator, mix_of(argc, argv, 1));
  std::printf("{\"wall_ns\": %.1f, \"cpu_ns\": %.1f}\n", cost.wall_ns, cost.cpu_ns);
}
