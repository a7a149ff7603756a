// The CUDA driver: the table of its functions, opened from libcuda.so.1 at run time, and one device's
// view of it. Every driver call of the core goes through Device::invoke, which counts it and remembers
// sticky errors. No policy here.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "memx/error.h"

namespace memx {

#define MEMX_DRIVER_CALLS(X)                                                                             \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGet) X(cuDeviceGetCount)                   \
  X(cuDeviceTotalMem) X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxGetCurrent)        \
  X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSynchronize) X(cuCtxRecordEvent)                         \
  X(cuMemGetAllocationGranularity) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate)             \
  X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemHostAlloc) X(cuMemFreeHost)         \
  X(cuMemcpyDtoHAsync) X(cuMemcpyHtoDAsync) X(cuMemcpyAsync) X(cuStreamCreate) X(cuStreamDestroy)        \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamGetId) X(cuStreamGetFlags) X(cuStreamIsCapturing)                     \
  X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)               \
  X(cuEventSynchronize) X(cuThreadExchangeStreamCaptureMode) X(cuStreamGetCaptureInfo)                   \
  X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuGraphRetainUserObject)

enum class Call : unsigned {
#define X(name) name,
  MEMX_DRIVER_CALLS(X)
#undef X
      kCount
};

// Base name ("cuMemMap"), never a versioned symbol.
const char* call_name(Call call);

struct DriverTable {
#define X(name) decltype(&::name) name = nullptr;
  MEMX_DRIVER_CALLS(X)
#undef X
  int version = 0;
};

// Opens the driver on first use. Throws kDriver: there is none, it is too old, or it found no device.
const DriverTable& driver();
// True if a libcuda.so.1 is in the process already, whoever opened it.
bool driver_loaded();

// One device: its retained primary context and the counts of memx's calls on its behalf.
class Device {
 public:
  explicit Device(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  template <class Fn, class... Args>
  CUresult invoke(Call call, Fn fn, Args... args) noexcept {
    if (!fn) return CUDA_ERROR_NOT_SUPPORTED;
    counts_[static_cast<unsigned>(call)].fetch_add(1, std::memory_order_relaxed);
    CUresult result = fn(args...);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) note(call, result);
    return result;
  }
  const DriverTable& table() const { return table_; }
  int ordinal() const { return ordinal_; }
  CUcontext context() const { return context_; }
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t count(Call call) const { return counts_[static_cast<unsigned>(call)].load(std::memory_order_relaxed); }

  // The first error after which the context can do nothing more, or CUDA_SUCCESS.
  CUresult sticky() const { return sticky_.load(std::memory_order_relaxed); }
  std::string error_name(CUresult result) const;
  // Throws what `result` of `call` means: kOutOfMemory or kDriver. `what` says what was being done.
  [[noreturn]] void raise(CUresult result, Call call, const std::string& what) const;

 private:
  void note(Call call, CUresult result) noexcept;

  const DriverTable& table_;
  int ordinal_;
  CUcontext context_ = nullptr;
  std::uint64_t total_bytes_ = 0;
  std::array<std::atomic<std::uint64_t>, static_cast<unsigned>(Call::kCount)> counts_{};
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
};

#define MEMX_CALL(device, name, ...) (device).invoke(::memx::Call::name, (device).table().name __VA_OPT__(, ) __VA_ARGS__)

// Makes the device's context current for a scope, and keeps calls in it from breaking another thread's
// stream capture. Virtual memory functions need neither.
class ContextScope {
 public:
  explicit ContextScope(Device& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Device& device_;
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace memx
