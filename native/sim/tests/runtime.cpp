// Several host threads use the simulated runtime at once, as PyTorch's do: devices, memory, copies, kernels that come
// and go with the libraries that hold them, products, errors of each thread's own. Meant for the sanitizers.
#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*);
void __cudaUnregisterFatBinary(void** image);
int cublasCreate_v2(void** handle);
int cublasDestroy_v2(void* handle);
int cublasSetStream_v2(void* handle, cudaStream_t stream);
int cublasSgemm_v2(void* handle);
}

namespace {

constexpr int kThreads = 4, kRounds = 200;
constexpr size_t kCount = 5000;

char g_names[] = "shared_kernel";
char g_shared_kernel;
void* g_shared_handle = nullptr;

struct Image {
  explicit Image(const char* host, char* names) : image(__cudaRegisterFatBinary(names)) {
    __cudaRegisterFunction(image, host, nullptr, names, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  ~Image() { __cudaUnregisterFatBinary(image); }
  void** image;
};

void launch(const void* kernel, cudaStream_t stream) { CHECK(cudaLaunchKernel(kernel, 4, 32, nullptr, 0, stream)); }

void round_trip(int round, cudaStream_t stream, cudaEvent_t event) {
  int* device = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&device), kCount * sizeof(int)));
  std::vector<int> source(kCount, round), back(kCount, -1);
  CHECK(cudaMemcpyAsync(device, source.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpyAsync(device + 7, &round, sizeof round, cudaMemcpyHostToDevice, stream));
  launch(&g_shared_kernel, stream);
  int exact = -1, unknown = -1;
  CHECK(cudaMemcpyAsync(&exact, device + 7, sizeof exact, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaMemcpyAsync(&unknown, device + 8, sizeof unknown, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaMemcpyAsync(back.data(), device, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  EXPECT(exact == round);
  EXPECT(unknown == 0);
  EXPECT(back == source);
  CHECK(cudaFree(device));
}

void work(int number) {
  CHECK(cudaSetDevice(number % 2));
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* handle = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cublasCreate_v2(&handle));
  CHECK(cublasSetStream_v2(handle, stream));
  std::string names = "kernel_" + std::to_string(number);
  for (int round = 1; round <= kRounds; ++round) {
    char own_kernel = 0;
    const Image image(&own_kernel, names.data());
    launch(&own_kernel, stream);
    CHECK(cublasSgemm_v2(handle));
    if (number % 2 == 0) CHECK(cublasSgemm_v2(g_shared_handle));
    round_trip(round, stream, event);
    void* refused = nullptr;
    EXPECT(cudaMalloc(&refused, size_t{1} << 50) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaSuccess);
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cublasDestroy_v2(handle));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const memxsim_config config{256 << 20, 256 << 20, 64 << 10, 2, 0, 0, 1, 0};
  CHECK(memxsim_configure(&config));
  const Image image(&g_shared_kernel, g_names);
  CHECK(cublasCreate_v2(&g_shared_handle));
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
  CHECK(cudaDeviceSynchronize());
  CHECK(cublasDestroy_v2(g_shared_handle));
  EXPECT(memxsim_race_count() == 0);
  std::puts("ok");
  return 0;
}
