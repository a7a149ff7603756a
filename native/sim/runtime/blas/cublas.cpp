// libcublas.so.13: handles and their settings, which are real. The header is in no wheel that memx builds with, so the
// declarations are memx's own.
#include <mutex>
#include <unordered_set>

#include "handle.h"

namespace memxblas {

namespace {

struct Handles {
  std::mutex lock;
  std::unordered_set<const void*> live;
};

Handles& handles() {
  static auto* instance = new Handles;
  return *instance;
}

template <typename Use>
int with(const void* argument, Use&& use) {
  Handle* handle = handle_from(argument);
  if (!handle) return kNotInitialized;
  use(*handle);
  return kSuccess;
}

}  // namespace

Handle* handle_from(const void* argument) {
  Handles& all = handles();
  const std::lock_guard guard(all.lock);
  return all.live.count(argument) ? static_cast<Handle*>(const_cast<void*>(argument)) : nullptr;
}

}  // namespace memxblas

using namespace memxblas;

constexpr int kVersion = 130100;

BLAS_API int cublasCreate_v2(void** out) {
  if (!out) return kInvalidValue;
  if (const Status refused = use_context()) return refused;
  auto* handle = new Handle;
  Handles& all = handles();
  const std::lock_guard guard(all.lock);
  all.live.insert(handle);
  *out = handle;
  return kSuccess;
}

BLAS_API int cublasDestroy_v2(void* argument) {
  Handle* handle = handle_from(argument);
  if (!handle) return kNotInitialized;
  Handles& all = handles();
  const std::lock_guard guard(all.lock);
  all.live.erase(handle);
  delete handle;
  return kSuccess;
}

#define SETTING(Name, field, type)                                                                 \
  BLAS_API int cublasSet##Name(void* handle, type value) {                                         \
    return with(handle, [&](Handle& h) { h.field = value; });                                      \
  }                                                                                                \
  BLAS_API int cublasGet##Name(void* handle, type* value) {                                        \
    return value ? with(handle, [&](Handle& h) { *value = h.field; }) : static_cast<int>(kInvalidValue); \
  }
SETTING(Stream_v2, stream, CUstream)
SETTING(PointerMode_v2, pointer_mode, int)
SETTING(AtomicsMode, atomics_mode, int)
SETTING(MathMode, math_mode, int)
SETTING(SmCountTarget, sm_target, int)
#undef SETTING

BLAS_API int cublasSetWorkspace_v2(void* handle, void*, size_t) {
  return with(handle, [](Handle&) {});
}

BLAS_API int cublasGetVersion_v2(void*, int* version) {
  if (!version) return kInvalidValue;
  *version = kVersion;
  return kSuccess;
}
BLAS_API int cublasGetVersion(void* handle, int* version) { return cublasGetVersion_v2(handle, version); }
BLAS_API size_t cublasGetCudartVersion() { return 13000; }

BLAS_API int cublasGetProperty(int which, int* value) {
  if (!value || which < 0 || which > 2) return kInvalidValue;
  *value = which == 0 ? kVersion / 10000 : which == 1 ? kVersion / 100 % 100 : kVersion % 100;
  return kSuccess;
}

BLAS_API const char* cublasGetStatusName(int status) { return status_name(status); }
BLAS_API const char* cublasGetStatusString(int status) { return status_name(status); }
