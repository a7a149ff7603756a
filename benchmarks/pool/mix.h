// Random allocations and frees with a fixed number of live buffers, timed: what every allocator here is asked.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

struct Mix {
  std::uint64_t largest = 512 << 10;  // a power of two: every power of two below it is as likely as any other
  std::uint64_t live = 1000;          // buffers, over all threads
  unsigned threads = 1;
  unsigned streams = 1;
  std::uint64_t operations = 2'000'000;  // allocations and frees, over all threads
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  std::uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1Dull;
  }
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

struct Cost {
  double wall_ns = 0;  // of an operation, as its thread sees it
  double cpu_ns = 0;   // the same without what others made it wait
};

inline double now_ns(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// `Allocator` has allocate(bytes, stream number) -> address and
// free(address, bytes, stream number), and enter() for each thread.
template <class Allocator>
Cost run(Allocator& allocator, const Mix& mix) {
  struct Buffer {
    std::uint64_t address, bytes;
    unsigned stream;
  };
  const std::uint64_t live = std::max<std::uint64_t>(1, mix.live / mix.threads);
  const auto powers = static_cast<std::uint64_t>(std::countr_zero(mix.largest));
  const std::uint64_t rounds = mix.operations / 2 / mix.threads;
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go{false};
  std::vector<Cost> costs(mix.threads);
  auto work = [&](unsigned index) {
    allocator.enter();
    Random random(index + 1);
    std::vector<Buffer> buffers(live);
    auto fill = [&](Buffer& buffer) {
      const std::uint64_t power = 1ull << random.below(powers);
      buffer.bytes = power + random.below(power);
      buffer.stream = static_cast<unsigned>(random.below(mix.streams));
      buffer.address = allocator.allocate(buffer.bytes, buffer.stream);
    };
    auto exchange = [&](std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) {
        Buffer& buffer = buffers[random.below(live)];
        allocator.free(buffer.address, buffer.bytes, buffer.stream);
        fill(buffer);
      }
    };
    for (Buffer& buffer : buffers) fill(buffer);
    exchange(std::max(live, rounds / 2));  // what a long run looks like
    ready.fetch_add(1);
    while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
    const double wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    exchange(rounds);
    costs[index].cpu_ns = (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / static_cast<double>(2 * rounds);
    costs[index].wall_ns = (now_ns(CLOCK_MONOTONIC) - wall) / static_cast<double>(2 * rounds);
    ready.fetch_add(1);
    while (ready.load() < 2 * mix.threads) std::this_thread::yield();
    for (Buffer& buffer : buffers) allocator.free(buffer.address, buffer.bytes, buffer.stream);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < mix.threads; ++i) threads.emplace_back(work, i);
  while (ready.load() < mix.threads) std::this_thread::yield();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  Cost mean;
  for (const Cost& cost : costs) {
    mean.wall_ns += cost.wall_ns / mix.threads;
    mean.cpu_ns += cost.cpu_ns / mix.threads;
  }
  return mean;
}

// largest live threads streams operations
inline Mix mix_of(int argc, char** argv, int first) {
  Mix mix;
  if (argc < first + 5) std::exit(2);
  mix.largest = std::strtoull(argv[first], nullptr, 10);
  mix.live = std::strtoull(argv[first + 1], nullptr, 10);
  mix.threads = static_cast<unsigned>(std::strtoul(argv[first + 2], nullptr, 10));
  mix.streams = static_cast<unsigned>(std::strtoul(argv[first + 3], nullptr, 10));
  mix.operations = std::strtoull(argv[first + 4], nullptr, 10);
  return mix;
}
