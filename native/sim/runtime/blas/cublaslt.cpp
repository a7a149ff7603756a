// libcublasLt.so.13: handles and descriptors, which are real, one heuristic result, and the two operations with their
// streams. The declarations are memx's own.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "operation.h"

using namespace memxblas;

namespace {

using Attributes = std::map<int, std::vector<char>>;

// Descriptors, layouts, preferences and transformations are alike: named attributes, kept as they are given. Those
// that live in the caller's own memory are not followed.
struct Descriptors {
  std::mutex lock;
  std::unordered_map<const void*, Attributes> live;
};

Descriptors& descriptors() {
  static auto* instance = new Descriptors;
  return *instance;
}

constexpr size_t kOpaqueBytes = 512;  // more than any of them has

int create(void** out) {
  if (!out) return kInvalidValue;
  *out = new char[kOpaqueBytes]();
  Descriptors& all = descriptors();
  const std::lock_guard guard(all.lock);
  all.live[*out];
  return kSuccess;
}

int destroy(void* descriptor) {
  Descriptors& all = descriptors();
  const std::lock_guard guard(all.lock);
  if (all.live.erase(descriptor)) delete[] static_cast<char*>(descriptor);
  return kSuccess;
}

int set(void* descriptor, int name, const void* value, size_t bytes) {
  if (!descriptor || !value) return kInvalidValue;
  Descriptors& all = descriptors();
  const std::lock_guard guard(all.lock);
  const auto found = all.live.find(descriptor);
  const auto* data = static_cast<const char*>(value);
  if (found != all.live.end()) found->second[name].assign(data, data + bytes);
  return kSuccess;
}

int get(const void* descriptor, int name, void* out, size_t bytes, size_t* written) {
  Descriptors& all = descriptors();
  const std::lock_guard guard(all.lock);
  const auto found = all.live.find(descriptor);
  const std::vector<char> none(bytes);
  const std::vector<char>* value = &none;
  if (found != all.live.end())
    if (const auto known = found->second.find(name); known != found->second.end()) value = &known->second;
  if (written) *written = value->size();
  if (bytes && bytes < value->size()) return kInvalidValue;
  if (out && bytes) std::memcpy(out, value->data(), value->size());
  return kSuccess;
}

// An algorithm and its estimate, as cublasLtMatmulAlgoGetHeuristic writes them.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

BLAS_API int cublasLtCreate(void** out) {
  if (!out) return kInvalidValue;
  if (const Status refused = use_context()) return refused;
  *out = new char;
  return kSuccess;
}
BLAS_API int cublasLtDestroy(void* handle) {
  delete static_cast<char*>(handle);
  return kSuccess;
}
BLAS_API size_t cublasLtGetVersion() { return 130100; }
BLAS_API size_t cublasLtGetCudartVersion() { return 13000; }
BLAS_API const char* cublasLtGetStatusName(int status) { return status_name(status); }
BLAS_API const char* cublasLtGetStatusString(int status) { return status_name(status); }

#define DESCRIPTOR(Name)                                                                                            \
  BLAS_API int cublasLt##Name##Destroy(void* d) { return destroy(d); }                                              \
  BLAS_API int cublasLt##Name##SetAttribute(void* d, int name, const void* value, size_t bytes) {                   \
    return set(d, name, value, bytes);                                                                              \
  }                                                                                                                 \
  BLAS_API int cublasLt##Name##GetAttribute(const void* d, int name, void* out, size_t bytes, size_t* written) {    \
    return get(d, name, out, bytes, written);                                                                       \
  }                                                                                                                 \
  BLAS_API int cublasLt##Name##Init_internal(void* d, size_t bytes) {                                               \
    if (!d) return kInvalidValue;                                                                                   \
    std::memset(d, 0, bytes);                                                                                       \
    return kSuccess;                                                                                                \
  }
DESCRIPTOR(MatmulDesc)
DESCRIPTOR(MatrixLayout)
DESCRIPTOR(MatmulPreference)
DESCRIPTOR(MatrixTransformDesc)
DESCRIPTOR(EmulationDesc)
#undef DESCRIPTOR

BLAS_API int cublasLtMatmulDescCreate(void** out, int, int) { return create(out); }
BLAS_API int cublasLtMatrixLayoutCreate(void** out, int, uint64_t, uint64_t, int64_t) { return create(out); }
BLAS_API int cublasLtMatmulPreferenceCreate(void** out) { return create(out); }
BLAS_API int cublasLtMatrixTransformDescCreate(void** out, int) { return create(out); }
BLAS_API int cublasLtEmulationDescCreate(void** out) { return create(out); }

BLAS_API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted, void* out,
                                            int* found) {
  if (!out || !found || wanted < 1) return kInvalidValue;
  static_assert(sizeof(Heuristic) == 96);
  const Heuristic only{{}, 0, kSuccess, 1.0F, {}};
  std::memcpy(out, &only, sizeof only);
  *found = 1;
  return kSuccess;
}

BLAS_API int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int wanted, int* ids, int* found) {
  if (!found) return kInvalidValue;
  if (ids && wanted > 0) *ids = 0;
  *found = 1;
  return kSuccess;
}

BLAS_API int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int, void* algorithm) {
  if (!algorithm) return kInvalidValue;
  std::memset(algorithm, 0, sizeof Heuristic::algorithm);
  return kSuccess;
}

BLAS_API int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, void*, void* out) {
  int found = 0;
  return cublasLtMatmulAlgoGetHeuristic(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 1, out, &found);
}

BLAS_API int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                            void*, void*, void*, const void*, void*, size_t, CUstream stream) {
  static Operation operation{"cublasLtMatmul"};
  return operation.queue(stream);
}

BLAS_API int cublasLtMatrixTransform(void*, void*, const void*, const void*, void*, const void*, const void*, void*,
                                     void*, void*, CUstream stream) {
  static Operation operation{"cublasLtMatrixTransform"};
  return operation.queue(stream);
}
