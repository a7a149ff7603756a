// Threads that allocate, use, hand on, free, move and trim on one resource over the simulated device, with driver
// calls failing now and then. Built under the sanitizers. It ends with every byte as it was written, no race found
// by the simulator's oracle, and nothing left allocated.
#include <memx_sim.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "memx/resource.h"
#include "require.h"

namespace {

constexpr std::uint64_t kPage = 64 << 10;
constexpr int kThreads = 5;
constexpr int kStepsPerThread = 2000;
const char* const kFailing[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemHostAlloc", "cuEventCreate",
                                "cuEventRecord", "cuMemRelease"};

struct Kernels {
  CUfunction stamp, verify;
  std::uint64_t* mismatches;
};

struct Buffer {
  std::uint64_t address, bytes, seed;
  CUstream last;
  bool filled = false;  // from a source
};

// What the stamp kernel writes.
class Pattern : public memx::Source {
 public:
  explicit Pattern(std::uint64_t seed) : seed_(seed) {}
  void fill(void* into, std::uint64_t offset, std::uint64_t bytes) override {
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const std::uint64_t at = offset + i;
      const std::uint32_t word = (static_cast<std::uint32_t>(at >> 2) * 0x9E3779B1u + static_cast<std::uint32_t>(seed_ >> 32)) ^ static_cast<std::uint32_t>(seed_);
      static_cast<unsigned char*>(into)[i] = static_cast<unsigned char>(word >> (at % 4 * 8));
    }
  }

 private:
  std::uint64_t seed_;
};

// Buffers on their way from one thread to another, each with an event after its last use.
struct Mailbox {
  std::mutex mutex;
  std::deque<std::pair<Buffer, CUevent>> waiting;
};

void launch(CUfunction function, CUstream stream, std::initializer_list<std::uint64_t> values) {
  std::vector<std::uint64_t> arguments(values);
  std::vector<void*> pointers;
  for (auto& value : arguments) pointers.push_back(&value);
  REQUIRE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers.data(), nullptr) == CUDA_SUCCESS);
}

class Worker {
 public:
  Worker(memx::Resource& resource, const Kernels& kernels, Mailbox& mailbox, CUcontext context, bool lazy,
         unsigned seed)
      : resource_(resource), kernels_(kernels), mailbox_(mailbox), lazy_(lazy), random_(seed) {
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&stream_, seed % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    REQUIRE(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }

  void run() {
    for (int step = 0; step < kStepsPerThread; ++step) {
      try {
        act();
      } catch (const memx::Error& error) {
        REQUIRE(error.what()[0] != 0);
      }
    }
    while (!held_.empty()) discard(held_.size() - 1);
    for (;;) {
      take_one();
      if (held_.empty()) break;
      discard(0);
    }
    REQUIRE(cuStreamSynchronize(stream_) == CUDA_SUCCESS);
    REQUIRE(cuStreamDestroy(stream_) == CUDA_SUCCESS);
    REQUIRE(cuEventDestroy(event_) == CUDA_SUCCESS);
  }

 private:
  std::size_t pick() { return random_() % held_.size(); }

  void act() {
    const unsigned action = random_() % 100;
    if (held_.empty() || action < 25) {
      const std::uint64_t bytes = random_() % 4 ? 1 + random_() % 3000 : 1 + random_() % (4 * kPage);
      const std::uint64_t align = random_() % 8 ? 0 : kPage;
      memx::Extra extra;
      std::uint64_t seed = 0;
      if (lazy_ && random_() % 4 == 0) {
        seed = random_() | 1ull << 40;
        extra.source = std::make_shared<Pattern>(seed);
        extra.priority = static_cast<int>(random_() % 3) - 1;
      }
      const std::uint64_t address = resource_.allocate(bytes, stream_, align, memx::Placement::kPreferDevice, random_() % 8 == 0,
                                                       seed ? &extra : nullptr);
      held_.push_back({address, bytes, seed, stream_, seed != 0});
    } else if (action < 50) {
      discard(pick());
    } else if (action < 80) {
      Buffer& buffer = held_[pick()];
      use(buffer, random_() % 2 && !buffer.filled);
    } else if (action < 88) {
      hand_on(pick());
    } else if (action < 94) {
      take_one();
    } else if (action < 96) {
      resource_.trim(random_() % 2 * 4 * kPage);
    } else if (action < 97) {
      const memx::Statistics now = resource_.statistics();
      REQUIRE(now.all.requested.current <= now.all.allocated.current && now.all.allocated.current <= now.active.current);
    } else if (action < 98) {
      resource_.check();
    } else if (action < 99 && lazy_) {
      if (random_() % 2)
        resource_.evict(held_[pick()].address);
      else
        resource_.prefetch(held_[pick()].address, stream_);
    } else {
      Buffer& buffer = held_[pick()];
      std::vector<std::byte> out(buffer.bytes);
      resource_.read(buffer.address, 0, out.data(), out.size());
    }
  }

  void use(Buffer& buffer, bool write) {
    const std::uint64_t token = resource_.begin_use({{buffer.address, 0, buffer.bytes, write ? 2u : 1u}}, stream_);
    if (buffer.seed && !write)
      launch(kernels_.verify, stream_,
             {buffer.address, buffer.bytes, buffer.seed, 0, reinterpret_cast<std::uint64_t>(kernels_.mismatches)});
    if (write) {
      buffer.seed = random_() | 1ull << 40;
      launch(kernels_.stamp, stream_, {buffer.address, buffer.bytes, buffer.seed, 0});
    }
    resource_.end_use(token);
  }

  void hand_on(std::size_t index) {
    // Calls fail at random here: what the receiver waits for must not.
    CUevent event = event_;
    if (cuEventRecord(event_, stream_) != CUDA_SUCCESS) return;
    if (cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      event_ = event;
      return;
    }
    std::lock_guard<std::mutex> lock(mailbox_.mutex);
    mailbox_.waiting.emplace_back(held_[index], event);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void take_one() {
    std::pair<Buffer, CUevent> one;
    {
      std::lock_guard<std::mutex> lock(mailbox_.mutex);
      if (mailbox_.waiting.empty()) return;
      one = mailbox_.waiting.front();
      mailbox_.waiting.pop_front();
    }
    REQUIRE(cuStreamWaitEvent(stream_, one.second, 0) == CUDA_SUCCESS);
    REQUIRE(cuEventDestroy(one.second) == CUDA_SUCCESS);
    resource_.record_stream(one.first.address, stream_);
    held_.push_back(one.first);
  }

  void discard(std::size_t index) {
    Buffer buffer = held_[index];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
    resource_.free(buffer.address);
  }

  memx::Resource& resource_;
  const Kernels& kernels_;
  Mailbox& mailbox_;
  bool lazy_;
  std::mt19937_64 random_;
  CUstream stream_;
  CUevent event_;
  std::vector<Buffer> held_;
};

void stress(const memx::Config& config, const Kernels& kernels, CUcontext context, unsigned seed) {
  memx::Resource resource(config);
  Mailbox mailbox;
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned i = 0; i < kThreads; ++i)
    workers.push_back(std::make_unique<Worker>(resource, kernels, mailbox, context, config.lazy, seed * 100 + i));
  for (const char* call : kFailing) memxsim_fail(call, 0, 0, 0.01, 0, CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&] {
      REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
      worker->run();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const char* call : kFailing) memxsim_fail(call, 0, 0, 0, 0, 0);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  // What the last worker left behind in the mailbox after the others had ended.
  for (auto& [buffer, event] : mailbox.waiting) {
    resource.free(buffer.address);
    REQUIRE(cuEventDestroy(event) == CUDA_SUCCESS);
  }
  resource.check();
  const memx::Statistics statistics = resource.statistics();
  REQUIRE(statistics.all.allocated.current == 0);
  REQUIRE(statistics.reserved.peak <= config.device_limit);
  REQUIRE(statistics.host.peak <= config.host_limit);
  REQUIRE(*kernels.mismatches == 0);
  // Work on streams that are gone is known to be over by an event that the first trim records.
  resource.trim(0);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  resource.trim(0);
  REQUIRE(resource.statistics().reserved.current == 0);
  if (memxsim_race_count()) {
    std::vector<char> text(memxsim_races_json(nullptr, 0));
    memxsim_races_json(text.data(), text.size());
    std::fprintf(stderr, "%.2000s\n", text.data());
  }
  REQUIRE(memxsim_race_count() == 0);
  std::printf("%s%s %d: %llu allocations, %llu migrated out, peak reserved %llu\n", config.framework ? "framework's " : "", config.lazy ? "lazy" : "eager",
              static_cast<int>(config.reuse), static_cast<unsigned long long>(statistics.all.blocks.gained),
              static_cast<unsigned long long>(statistics.migrated_out_bytes),
              static_cast<unsigned long long>(statistics.reserved.peak));
}

}  // namespace

int main() {
  memxsim_config simulated = {};
  simulated.device_bytes = 64 << 20;
  simulated.host_bytes = 256 << 20;
  simulated.page_bytes = kPage;
  simulated.devices = 1;
  simulated.host_mappable = 1;
  REQUIRE(memxsim_configure(&simulated) == 0);
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CUmodule module;
  Kernels kernels;
  REQUIRE(cuModuleLoadData(&module, ".visible .entry memx_stamp() .visible .entry memx_verify()") == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&kernels.stamp, module, "memx_stamp") == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&kernels.verify, module, "memx_verify") == CUDA_SUCCESS);
  REQUIRE(cuMemAllocHost(reinterpret_cast<void**>(&kernels.mismatches), 8) == CUDA_SUCCESS);
  *kernels.mismatches = 0;
  unsigned seed = 1;
  for (int kind = 0; kind < 3; ++kind)
    for (memx::ReuseMode mode : {memx::ReuseMode::kStream, memx::ReuseMode::kDefault, memx::ReuseMode::kMutual}) {
      memx::Config config;
      config.device_limit = 24 * kPage;
      config.host_limit = 200 * kPage;
      config.lazy = kind == 1;
      config.framework = kind == 2;
      config.reuse = mode;
      config.eviction = static_cast<memx::EvictionPolicy>(static_cast<int>(mode) % 3);
      config.page_bytes = kPage;
      if (config.lazy && mode != memx::ReuseMode::kStream) {
        config.low_water = 6 * kPage;
        config.look_ahead = 3 * kPage;
      }
      stress(config, kernels, context, seed++);
    }
  return 0;
}
