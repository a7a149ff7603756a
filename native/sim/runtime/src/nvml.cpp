// libnvidia-ml.so.1, as much of it as PyTorch asks: how many devices, which one is at a PCI address, how full it is.
// Its header is in no wheel that memx builds with, so these are declarations of its own.
#include <cuda.h>

#include <cstdio>
#include <cstring>

namespace {

enum Result { kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7 };

struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

Result ready() { return cuInit(0) ? kUninitialized : kSuccess; }

// A handle is the device's number and one.
void* handle_of(CUdevice device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1); }

bool device_of(void* handle, CUdevice* device) {
  int count = 0;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (cuDeviceGetCount(&count) || number < 1 || number > static_cast<uintptr_t>(count)) return false;
  *device = static_cast<CUdevice>(number - 1);
  return true;
}

// The memory in use is a context's answer; a device whose primary context is not active uses none.
Result memory_of(void* handle, Memory* out) {
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  size_t total = 0, free = 0;
  if (!out || !device_of(handle, &device)) return kInvalidArgument;
  cuDeviceTotalMem(&total, device);
  free = total;
  CUcontext context = nullptr;
  if (cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active &&
      cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) {
    cuCtxPushCurrent(context);
    cuMemGetInfo(&free, &total);
    cuCtxPopCurrent(nullptr);
    cuDevicePrimaryCtxRelease(device);
  }
  *out = {total, free, total - free};
  return kSuccess;
}

Result write(char* out, unsigned length, const char* text) {
  if (!out) return kInvalidArgument;
  if (std::strlen(text) >= length) return kTooSmall;
  std::strcpy(out, text);
  return kSuccess;
}

}  // namespace

#define NVML extern "C" __attribute__((visibility("default"))) int

NVML nvmlInit_v2() { return ready(); }
NVML nvmlInit() { return ready(); }
NVML nvmlInitWithFlags(unsigned) { return ready(); }
NVML nvmlShutdown() { return kSuccess; }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kNotSupported: return "Not Supported";
    case kNotFound: return "Not Found";
    case kTooSmall: return "Insufficient Size";
    default: return "Unknown Error";
  }
}

NVML nvmlSystemGetDriverVersion(char* out, unsigned length) { return write(out, length, "580.00 (simulated)"); }
NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return cuDriverGetVersion(version) ? kInvalidArgument : kSuccess;
}
NVML nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

NVML nvmlDeviceGetCount_v2(unsigned* count) {
  if (!count) return kInvalidArgument;
  if (const Result refused = ready()) return refused;
  int devices = 0;
  cuDeviceGetCount(&devices);
  *count = static_cast<unsigned>(devices);
  return kSuccess;
}

NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  CUdevice device = 0;
  void* candidate = handle_of(static_cast<CUdevice>(index));
  if (!handle || !device_of(candidate, &device)) return kInvalidArgument;
  *handle = candidate;
  return kSuccess;
}

NVML nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  CUdevice device = 0;
  if (!address || !handle) return kInvalidArgument;
  if (cuDeviceGetByPCIBusId(&device, address)) return kNotFound;
  *handle = handle_of(device);
  return kSuccess;
}

NVML nvmlDeviceGetIndex(void* handle, unsigned* index) {
  CUdevice device = 0;
  if (!index || !device_of(handle, &device)) return kInvalidArgument;
  *index = static_cast<unsigned>(device);
  return kSuccess;
}

NVML nvmlDeviceGetName(void* handle, char* name, unsigned length) {
  CUdevice device = 0;
  char text[256];
  if (!device_of(handle, &device) || cuDeviceGetName(text, sizeof text, device)) return kInvalidArgument;
  return write(name, length, text);
}

NVML nvmlDeviceGetUUID(void* handle, char* out, unsigned length) {
  CUdevice device = 0;
  CUuuid uuid{};
  if (!device_of(handle, &device) || cuDeviceGetUuid(&uuid, device)) return kInvalidArgument;
  char text[48] = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    const size_t at = std::strlen(text);
    std::snprintf(text + at, sizeof text - at, dash ? "-%02x" : "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return write(out, length, text);
}

NVML nvmlDeviceGetMemoryInfo(void* handle, Memory* out) { return memory_of(handle, out); }

NVML nvmlDeviceGetMemoryInfo_v2(void* handle, Memory2* out) {
  Memory memory{};
  if (!out) return kInvalidArgument;
  if (const Result refused = memory_of(handle, &memory)) return refused;
  *out = {out->version, memory.total, 0, memory.free, memory.used};
  return kSuccess;
}

// No fabric: the caller's structure, which says so, is left as it is.
NVML nvmlDeviceGetGpuFabricInfoV(void* handle, void* info) {
  CUdevice device = 0;
  return info && device_of(handle, &device) ? kSuccess : kInvalidArgument;
}

NVML nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  if (!count) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}
NVML nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void* out) {
  return nvmlDeviceGetComputeRunningProcesses(handle, count, out);
}

NVML nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNotSupported; }
NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
