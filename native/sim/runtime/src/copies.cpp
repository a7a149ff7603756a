// Copies and fills. The kind says where each side is, and the driver holds the caller to it.
#include "runtime.h"
#include "values.h"

using namespace memxrt;

namespace {

bool is_kind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

// A null stream is the legacy one; so a synchronous copy is one of two functions.
enum class Sync { no, yes };

CUresult copy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, Sync sync) {
  const CUdeviceptr to = address(dst), from = address(src);
  const bool wait = sync == Sync::yes;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return wait ? cuMemcpyHtoD(to, src, bytes) : cuMemcpyHtoDAsync(to, src, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return wait ? cuMemcpyDtoH(dst, from, bytes) : cuMemcpyDtoHAsync(dst, from, bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return wait ? cuMemcpyDtoD(to, from, bytes) : cuMemcpyDtoDAsync(to, from, bytes, stream);
    default: return wait ? cuMemcpy(to, from, bytes) : cuMemcpyAsync(to, from, bytes, stream);
  }
}

bool on_device(const void* pointer) {
  unsigned type = 0;
  return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pointer)) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

// What the copy says of single values; one that is unknown reads 0.
CUresult follow_values(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, Sync sync) {
  static const char zeros[kSingleValueBytes] = {};
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                           (kind == cudaMemcpyDefault && on_device(src));
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                         (kind == cudaMemcpyDefault && on_device(dst));
  const bool known = !from_device || bytes > kSingleValueBytes || !value_unknown(address(src), bytes);
  if (to_device) value_written(address(dst), bytes, known);
  if (to_device || known) return CUDA_SUCCESS;
  return copy(dst, zeros, bytes, cudaMemcpyHostToHost, stream, sync);
}

cudaError_t checked_copy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                         Sync sync) {
  if (!is_kind(kind)) return done(cudaErrorInvalidMemcpyDirection);
  USE_CONTEXT();
  if (!bytes) return cudaSuccess;
  if (!dst || !src) return done(cudaErrorInvalidValue);
  if (const CUresult code = copy(dst, src, bytes, kind, stream, sync)) return done(code);
  return done(follow_values(dst, src, bytes, kind, stream, sync));
}

cudaError_t copy_rows(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind, cudaStream_t stream, Sync sync) {
  if (!is_kind(kind)) return done(cudaErrorInvalidMemcpyDirection);
  USE_CONTEXT();
  if (width > dst_pitch || width > src_pitch) return done(cudaErrorInvalidPitchValue);
  if (!width || !height) return cudaSuccess;
  if (!dst || !src) return done(cudaErrorInvalidValue);
  const auto type = [kind](bool host) {
    if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  };
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = type(kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice);
  c.dstMemoryType = type(kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost);
  c.srcHost = src;
  c.srcDevice = address(src);
  c.srcPitch = src_pitch;
  c.dstHost = dst;
  c.dstDevice = address(dst);
  c.dstPitch = dst_pitch;
  c.WidthInBytes = width;
  c.Height = height;
  return done(sync == Sync::yes ? cuMemcpy2DUnaligned(&c) : cuMemcpy2DAsync(&c, stream));
}

cudaError_t written(CUresult code, void* pointer, size_t bytes) {
  if (code == CUDA_SUCCESS && bytes) value_written(address(pointer), bytes, true);
  return done(code);
}

cudaError_t peers(int to, int from, CUcontext (&contexts)[2]) {
  const int devices[] = {to, from};
  for (int i = 0; i < 2; ++i) {
    if (!is_device(devices[i])) return cudaErrorInvalidDevice;
    if (const cudaError_t code = retain_primary(devices[i], &contexts[i])) return code;
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMemcpy(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind) {
  return checked_copy(dst, src, bytes, kind, nullptr, Sync::yes);
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return checked_copy(dst, src, bytes, kind, stream, Sync::no);
}

cudaError_t CUDARTAPI cudaMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                                   size_t height, enum cudaMemcpyKind kind) {
  return copy_rows(dst, dst_pitch, src, src_pitch, width, height, kind, nullptr, Sync::yes);
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                                        size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(dst, dst_pitch, src, src_pitch, width, height, kind, stream, Sync::no);
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void* dst, int to, const void* src, int from, size_t bytes) {
  USE_CONTEXT();
  CUcontext contexts[2] = {};
  if (const cudaError_t code = peers(to, from, contexts)) return done(code);
  return written(cuMemcpyPeer(address(dst), contexts[0], address(src), contexts[1], bytes), dst, bytes);
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* dst, int to, const void* src, int from, size_t bytes,
                                          cudaStream_t stream) {
  USE_CONTEXT();
  CUcontext contexts[2] = {};
  if (const cudaError_t code = peers(to, from, contexts)) return done(code);
  return written(cuMemcpyPeerAsync(address(dst), contexts[0], address(src), contexts[1], bytes, stream), dst, bytes);
}

cudaError_t CUDARTAPI cudaMemset(void* pointer, int value, size_t bytes) {
  USE_CONTEXT();
  return written(cuMemsetD8(address(pointer), static_cast<unsigned char>(value), bytes), pointer, bytes);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  USE_CONTEXT();
  return written(cuMemsetD8Async(address(pointer), static_cast<unsigned char>(value), bytes, stream), pointer, bytes);
}

cudaError_t CUDARTAPI cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  USE_CONTEXT();
  return done(cuMemsetD2D8(address(pointer), pitch, static_cast<unsigned char>(value), width, height));
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                                        cudaStream_t stream) {
  USE_CONTEXT();
  return done(cuMemsetD2D8Async(address(pointer), pitch, static_cast<unsigned char>(value), width, height, stream));
}

}  // extern "C"
