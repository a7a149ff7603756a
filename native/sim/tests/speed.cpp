// What the simulator itself costs: microseconds a call, so that a test's time can be foreseen.
#include <chrono>
#include <functional>

#include "check.h"

namespace {

void time(const char* what, int repetitions, const std::function<void(int)>& body, const std::function<void()>& end = [] {}) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) body(i);
  end();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("%-40s %9.3f us\n", what, elapsed.count() / repetitions);
}

}  // namespace

int main() {
  const memxsim_config config{uint64_t{1} << 30, uint64_t{1} << 30, 2 << 20, 1, 0, 0, 1, 0};
  CHECK(memxsim_configure(&config));
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const Kernels kernels;
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 64 << 20));
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const auto sync = [&] { CHECK(cuStreamSynchronize(stream)); };

  time("touch kernel, queued and run", 200000, [&](int) { kernels.touch_on(stream, memory, 4096, 1); }, sync);
  time("touch kernel and synchronise", 100000, [&](int) { kernels.touch_on(stream, memory, 4096, 1); sync(); });
  time("event record and query", 200000, [&](int) { CHECK(cuEventRecord(event, stream)); (void)cuEventQuery(event); }, sync);
  time("event query, complete", 1000000, [&](int) { CHECK(cuEventQuery(event)); });
  CUstream other = nullptr;
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  time("touch on two streams with events between", 200000, [&](int i) {
    CUstream a = i % 2 ? stream : other, b = i % 2 ? other : stream;
    kernels.touch_on(a, memory, 4096, 1);
    CHECK(cuEventRecord(event, a));
    CHECK(cuStreamWaitEvent(b, event, 0));
  }, [&] { CHECK(cuCtxSynchronize()); });
  time("a million small blocks of 64 MiB", 1000000, [&](int i) {
    kernels.touch_on(stream, memory + (uint64_t(i) * 7919 % 131072) * 512, 512, i % 3 == 0);
  }, sync);
  unsigned long long id = 0;
  time("stream id", 1000000, [&](int) { CHECK(cuStreamGetId(stream, &id)); });
  time("stamp 64 MiB", 20, [&](int) { kernels.stamp_on(stream, memory, 64 << 20, 1); }, sync);
  CUdeviceptr counter = 0;
  CHECK(cuMemAlloc(&counter, 8));
  CHECK(cuMemsetD8(counter, 0, 8));
  CHECK(cuCtxSynchronize());
  time("verify 64 MiB", 20, [&](int) { kernels.verify_on(stream, memory, 64 << 20, 1, counter); }, sync);

  const CUmemAllocationProp prop = device_memory(0);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, 2 << 20, &prop, 0));
  CUdeviceptr range = 0;
  CHECK(cuMemAddressReserve(&range, uint64_t{1} << 40, 0, 0, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  time("create and release", 100000, [&](int) {
    CUmemGenericAllocationHandle made = 0;
    CHECK(cuMemCreate(&made, 2 << 20, &prop, 0));
    CHECK(cuMemRelease(made));
  });
  time("map", 100000, [&](int i) { CHECK(cuMemMap(range + (uint64_t(i) << 21), 2 << 20, 0, handle, 0)); });
  time("set access", 100000, [&](int i) { CHECK(cuMemSetAccess(range + (uint64_t(i) << 21), 2 << 20, &access, 1)); });
  time("unmap", 100000, [&](int i) { CHECK(cuMemUnmap(range + (uint64_t(i) << 21), 2 << 20)); });
  EXPECT(memxsim_race_count() == 0);
  return 0;
}
