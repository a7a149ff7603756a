#include "memx/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>

namespace memx {
namespace {

constexpr int kOldestDriver = 12000;   // cuStreamGetId
constexpr int kContextEvents = 12050;  // cuCtxRecordEvent

#define STRING_OF(name) #name
#define SYMBOL_OF(name) STRING_OF(name)

// Functions that only newer drivers have and that memx has another way for.
bool optional(Call call) {
  switch (call) {
    case Call::cuCtxRecordEvent:
    case Call::cuStreamGetCaptureInfo:
    case Call::cuUserObjectCreate:
    case Call::cuUserObjectRelease:
    case Call::cuGraphRetainUserObject:
      return true;
    default:
      return false;
  }
}

DriverTable load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw Error(ErrorKind::kDriver,
                "no CUDA driver: libcuda.so.1 cannot be opened. Install an NVIDIA driver, or call memx.simulate() "
                "first (or set MEMX_SIMULATE) to run on the simulated device");
  DriverTable table;
#define X(name) table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, SYMBOL_OF(name)));
  MEMX_DRIVER_CALLS(X)
#undef X
  if (table.cuDriverGetVersion) table.cuDriverGetVersion(&table.version);
  if (table.version < kContextEvents) table.cuCtxRecordEvent = nullptr;  // exported by some that cannot do it
  const char* missing = nullptr;
#define X(name) \
  if (!table.name && !optional(Call::name)) missing = #name;
  MEMX_DRIVER_CALLS(X)
#undef X
  if (table.version < kOldestDriver || missing) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "the CUDA driver is too old: it speaks CUDA %d.%d%s%s, and memx needs 12.0 or newer; update the driver",
                  table.version / 1000, table.version % 1000 / 10, missing ? " and lacks " : "", missing ? missing : "");
    throw Error(ErrorKind::kDriver, text);
  }
  CUresult result = table.cuInit(0);
  if (result != CUDA_SUCCESS) {
    const char* name = "an unknown error";
    table.cuGetErrorName(result, &name);
    throw Error(ErrorKind::kDriver, std::string("the CUDA driver does not start: cuInit says ") + name, result, "cuInit");
  }
  return table;
}

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string format_bytes(unsigned long long bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  unsigned unit = 0;
  while (value >= 1024 && unit < 6) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value == static_cast<double>(static_cast<long long>(value)) ? "%.0f %s" : "%.2f %s",
                value, kUnits[unit]);
  return text;
}

const char* call_name(Call call) {
  static const char* const kNames[] = {
#define X(name) #name,
      MEMX_DRIVER_CALLS(X)
#undef X
  };
  return kNames[static_cast<unsigned>(call)];
}

const DriverTable& driver() {
  static std::mutex mutex;
  static const DriverTable* table = nullptr;  // never freed: used at exit
  std::lock_guard<std::mutex> lock(mutex);
  if (!table) table = new DriverTable(load());
  return *table;
}

bool driver_loaded() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library) dlclose(library);
  return library != nullptr;
}

Device::Device(int ordinal) : table_(driver()), ordinal_(ordinal) {
  int count = 0;
  CUresult result = MEMX_CALL(*this, cuDeviceGetCount, &count);
  if (result != CUDA_SUCCESS) raise(result, Call::cuDeviceGetCount, "counting devices");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorKind::kInvalidValue,
                "device " + std::to_string(ordinal) + " does not exist: the driver has " + std::to_string(count));
  std::size_t total = 0;
  result = MEMX_CALL(*this, cuDeviceTotalMem, &total, CUdevice(ordinal));
  if (result != CUDA_SUCCESS) raise(result, Call::cuDeviceTotalMem, "asking for the device's memory");
  total_bytes_ = total;
  result = MEMX_CALL(*this, cuDevicePrimaryCtxRetain, &context_, CUdevice(ordinal));
  if (result != CUDA_SUCCESS) raise(result, Call::cuDevicePrimaryCtxRetain, "retaining the device's context");
}

Device::~Device() {
  if (context_) MEMX_CALL(*this, cuDevicePrimaryCtxRelease, CUdevice(ordinal_));
}

void Device::note(Call call, CUresult result) noexcept {
  // Before the context exists there is nothing to spoil.
  if (!context_ || !is_sticky(result)) return;
  (void)call;
  CUresult none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, result);
}

std::string Device::error_name(CUresult result) const {
  const char* name = nullptr;
  if (table_.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) return "CUDA error " + std::to_string(result);
  return name;
}

void Device::raise(CUresult result, Call call, const std::string& what) const {
  std::string text = std::string(call_name(call)) + " failed with " + error_name(result) + " while " + what;
  if (is_sticky(result))
    text += "; the device's context cannot be used any more in this process: restart it";
  throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::kOutOfMemory : ErrorKind::kDriver, text, result,
              call_name(call));
}

ContextScope::ContextScope(Device& device) : device_(device) {
  CUcontext current = nullptr;
  MEMX_CALL(device_, cuCtxGetCurrent, &current);
  if (current != device_.context()) pushed_ = MEMX_CALL(device_, cuCtxPushCurrent, device_.context()) == CUDA_SUCCESS;
  MEMX_CALL(device_, cuThreadExchangeStreamCaptureMode, &mode_);
}

ContextScope::~ContextScope() {
  MEMX_CALL(device_, cuThreadExchangeStreamCaptureMode, &mode_);
  CUcontext popped = nullptr;
  if (pushed_) MEMX_CALL(device_, cuCtxPopCurrent, &popped);
}

}  // namespace memx
