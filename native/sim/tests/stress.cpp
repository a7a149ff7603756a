// Several host threads use streams, events, mappings, copies and callbacks at once, correctly. Contents must be
// right, the oracle must be silent, nothing may remain. Meant to be run under ThreadSanitizer and AddressSanitizer.
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr uint64_t kPage = 64 << 10;
constexpr int kThreads = 4;
constexpr int kRounds = 300;

std::atomic<uint64_t> g_called{0}, g_destroyed{0}, g_graphs{0};

void page_cycle(std::mt19937_64& random, CUstream a, CUstream b, const Kernels& kernels, CUevent event, CUdeviceptr counter) {
  const CUmemAllocationProp prop = device_memory(0);
  const uint64_t pages = 1 + random() % 4;
  CUdeviceptr range = 0;
  CHECK(cuMemAddressReserve(&range, 8 * kPage, 0, 0, 0));
  std::vector<CUmemGenericAllocationHandle> handles(pages);
  for (uint64_t i = 0; i < pages; ++i) {
    CHECK(cuMemCreate(&handles[i], kPage, &prop, 0));
    CHECK(cuMemMap(range + i * kPage, kPage, 0, handles[i], 0));
    CHECK(cuMemRelease(handles[i]));
  }
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(range, pages * kPage, &access, 1));
  const uint64_t offset = random() % kPage, seed = random();
  const uint64_t bytes = pages * kPage - offset;
  kernels.stamp_on(a, range + offset, bytes, seed);
  CHECK(cuEventRecord(event, a));
  CHECK(cuStreamWaitEvent(b, event, 0));
  kernels.verify_on(b, range + offset, bytes, seed, counter);
  CHECK(cuLaunchHostFunc(b, [](void*) { g_called.fetch_add(1); }, nullptr));
  if (random() % 2) {
    CHECK(cuStreamSynchronize(b));
  } else {
    CHECK(cuEventRecord(event, b));
    CHECK(memxsim_release(a));  // asking is not waiting: it would never end
    while (const CUresult state = cuEventQuery(event))
      if (state != CUDA_ERROR_NOT_READY) CHECK(state);
  }
  void* view = nullptr;
  CHECK(memxsim_view(range + offset, bytes, &view));
  CHECK(cuMemUnmap(range, pages * kPage));
  CHECK(cuMemAddressFree(range, 8 * kPage));
  const uint32_t first = static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(seed);
  EXPECT(*static_cast<unsigned char*>(view) == (first & 0xff));  // freed, and still what it was
  CHECK(memxsim_end_view(view));
}

// Waiting for the whole context, and using its legacy stream, end the capture of a stream by another thread too.
std::mutex g_capturing;

void synchronise() {
  const std::lock_guard guard(g_capturing);
  CHECK(cuCtxSynchronize());
}

// A graph with two branches, one in memory of its own, and an object that goes with it; launched twice. Memory from
// a pool for a third stream.
void graph_cycle(std::mt19937_64& random, CUstream a, CUstream b, const Kernels& kernels, CUdeviceptr memory,
                 CUdeviceptr counter) {
  CUevent fork = nullptr, join = nullptr;
  CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  const uint64_t seed = random();
  CUgraph graph = nullptr;
  std::unique_lock guard(g_capturing);
  CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuEventRecord(fork, a));
  CHECK(cuStreamWaitEvent(b, fork, 0));
  kernels.stamp_on(a, memory, 20000, seed);
  kernels.stamp_on(b, memory + 20000, 20000, seed);
  CUdeviceptr inside = 0;
  CHECK(cuMemAllocAsync(&inside, 30000, b));
  kernels.stamp_on(b, inside, 30000, seed);
  kernels.verify_on(b, inside, 30000, seed, counter);
  CHECK(cuMemFreeAsync(inside, b));
  CUuserObject object = nullptr;
  const CUhostFn destroy = [](void*) { g_destroyed.fetch_add(1); };
  CHECK(cuUserObjectCreate(&object, nullptr, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK(cuStreamGetCaptureInfo(b, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  g_graphs.fetch_add(1);
  CHECK(cuEventRecord(join, b));
  CHECK(cuStreamWaitEvent(a, join, 0));
  kernels.verify_on(a, memory, 20000, seed, counter);
  kernels.verify_on(a, memory + 20000, 20000, seed, counter);
  CHECK(cuStreamEndCapture(a, &graph));
  guard.unlock();
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiate(&executable, graph, 0));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuGraphLaunch(executable, a));
  CHECK(cuGraphLaunch(executable, a));
  CHECK(cuGraphExecDestroy(executable));
  CUdeviceptr pooled = 0;
  CHECK(cuMemAllocAsync(&pooled, 5000, b));
  kernels.stamp_on(b, pooled, 5000, seed);
  kernels.verify_on(b, pooled, 5000, seed, counter);
  CHECK(cuMemFreeAsync(pooled, b));
  CHECK(cuStreamSynchronize(a));
  CHECK(cuStreamSynchronize(b));
  CHECK(cuEventDestroy(fork));
  CHECK(cuEventDestroy(join));
}

void host_cycle(std::mt19937_64& random, CUstream stream, std::vector<unsigned char>& host, CUdeviceptr memory) {
  for (auto& byte : host) byte = static_cast<unsigned char>(random());
  std::vector<unsigned char> back(host.size());
  CHECK(cuMemcpyHtoDAsync(memory, host.data(), host.size(), stream));
  CHECK(cuMemcpyDtoHAsync(back.data(), memory, back.size(), stream));
  EXPECT(back == host);
}

void thread_body(CUcontext context, const Kernels* kernels, int number) {
  CHECK(cuCtxSetCurrent(context));
  std::mt19937_64 random(static_cast<uint64_t>(number));
  CUdeviceptr counter = 0, memory = 0;
  CHECK(cuMemAlloc(&counter, 8));
  CHECK(cuMemAlloc(&memory, 40000));
  {
    const std::lock_guard guard(g_capturing);
    CHECK(cuMemsetD32(counter, 0, 2));
    CHECK(cuStreamSynchronize(nullptr));
  }
  std::vector<unsigned char> host(40000);
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, 0));
  for (int round = 0; round < kRounds; ++round) {
    CUstream a = nullptr, b = nullptr;
    CHECK(cuStreamCreate(&a, round % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CHECK(cuStreamCreateWithPriority(&b, CU_STREAM_NON_BLOCKING, -(round % 3)));
    if (round % 5 == 0) CHECK(memxsim_hold(a));
    page_cycle(random, a, round % 3 ? b : CU_STREAM_PER_THREAD, *kernels, event, counter);
    if (round % 10 == 0) host_cycle(random, b, host, memory);
    if (round % 7 == 0) graph_cycle(random, a, b, *kernels, memory, counter);
    if (round % 50 == 0) synchronise();
    CHECK(cuStreamDestroy(a));
    CHECK(cuStreamDestroy(b));
  }
  uint64_t mismatches = 1;
  {
    const std::lock_guard guard(g_capturing);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(&mismatches, counter, 8));
  }
  EXPECT(mismatches == 0);
  CHECK(cuEventDestroy(event));
  CHECK(cuMemFree(memory));
  CHECK(cuMemFree(counter));
}

}  // namespace

int main() {
  const memxsim_config config{uint64_t{64} << 20, uint64_t{64} << 20, kPage, 1, 0, 0, 1, 0};
  CHECK(memxsim_configure(&config));
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const Kernels kernels;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(thread_body, context, &kernels, i);
  for (auto& thread : threads) thread.join();
  CHECK(cuCtxSynchronize());
  EXPECT(g_called == uint64_t{kThreads} * kRounds);
  while (g_destroyed != g_graphs) std::this_thread::yield();
  CHECK(cuDeviceGraphMemTrim(0));
  if (memxsim_race_count()) {
    std::vector<char> text(memxsim_races_json(nullptr, 0));
    memxsim_races_json(text.data(), text.size());
    std::fwrite(text.data(), 1, text.size(), stderr);
    return 1;
  }
  size_t free = 0, total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  EXPECT(free == total);
  return 0;
}
