// Copies and fills: what may be copied where is checked when they are called, whether the addresses can be
// reached when they run.
#include <algorithm>

#include "capture.h"
#include "context.h"
#include "works.h"

using namespace memxsim;

namespace {

enum class Side { device, host, any };

enum class Place { wrong, device, pinned, pageable };

// Where a side of a copy is. The driver knows a range if regions cover it; what it has never heard of is
// pageable; what lies in a reservation but has no memory is wrong at once.
Place place_of(uint64_t va, uint64_t bytes, Side side) {
  AddressSpace& addresses = driver().addresses;
  const Region* region = addresses.find(va);
  if (!region) {
    if (side == Side::device || addresses.reservation_at(va) || addresses.overlaps(va, bytes)) return Place::wrong;
    return Place::pageable;
  }
  if (!addresses.covered(va, bytes)) return Place::wrong;
  const bool host = region->phys->on_host();
  if (side == Side::host && (!host || region->host_access == kNoAccess)) return Place::wrong;
  return host ? Place::pinned : Place::device;
}

struct Rows {
  uint64_t dst = 0, dst_pitch = 0, src = 0, src_pitch = 0, width = 0, height = 1;
};

uint64_t extent(uint64_t pitch, const Rows& rows) { return pitch * (rows.height - 1) + rows.width; }

enum class Sync { async, wait };

// Whose contexts the sides of a peer's copy are; null otherwise.
struct Peers {
  Context* to = nullptr;
  Context* from = nullptr;
};

// The device whose access to a side counts: that of the context it was said to be in, and for what cuMemAlloc made its
// own, since the driver copies between devices that cannot reach each other too.
int device_for(uint64_t va, const Context* said) {
  if (said) return said->device;
  const Region* region = driver().addresses.find(va);
  return region && region->kind == Region::Kind::device ? region->phys->location : Operand::kQueues;
}

CUresult copy(CUstream stream, const char* name, Rows rows, Side to, Side from, Sync sync, Peers peers = {}) {
  Driver& d = driver();
  Lock lock(d.lock);
  USE_CONTEXT(context);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (queue->context->error) return queue->context->error;
  if (rows.width == 0 || rows.height == 0) return CUDA_SUCCESS;
  if (rows.width == rows.dst_pitch && rows.width == rows.src_pitch) {
    rows.width *= rows.height;
    rows.height = 1;
  }
  const Place dst = place_of(rows.dst, extent(rows.dst_pitch, rows), to);
  const Place src = place_of(rows.src, extent(rows.src_pitch, rows), from);
  if (dst == Place::wrong || src == Place::wrong) return CUDA_ERROR_INVALID_VALUE;
  if (sync == Sync::wait)
    if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;

  auto work = std::make_shared<Copy>(name);
  work->bytes_touched = rows.width * rows.height;
  work->operands.reserve(2 * rows.height);
  for (uint64_t row = 0; row < rows.height; ++row) {
    work->operands.push_back({rows.dst + row * rows.dst_pitch, rows.width, AccessKind::write, dst == Place::pageable,
                              device_for(rows.dst, peers.to)});
    work->operands.push_back({rows.src + row * rows.src_pitch, rows.width, AccessKind::read, src == Place::pageable,
                              device_for(rows.src, peers.from)});
  }
  const bool capturing = queue->capture != nullptr;
  // Copies between device memories are never waited for; with host memory the synchronous ones are, and those
  // to memory that the driver does not know are synchronous always.
  bool waits = sync == Sync::wait && !(dst == Place::device && src == Place::device);
  waits = (waits || dst == Place::pageable) && !capturing;
  if (src == Place::pageable && !waits && !capturing) {
    work->staged = std::make_unique<char[]>(work->bytes_touched);
    for (uint64_t row = 0; row < rows.height; ++row) {
      char* at = work->staged.get() + row * rows.width;
      std::memcpy(at, reinterpret_cast<const void*>(rows.src + row * rows.src_pitch), rows.width);
      work->operands[2 * row + 1].va = reinterpret_cast<uint64_t>(at);
    }
  }
  if (!waits) return submit_locked(*queue, std::move(work));
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  Context& owner = *queue->context;
  enqueue(*queue, std::move(work), {}, true);
  host_wait(lock, *queue);
  return owner.error;
}

CUresult copy_between(CUstream stream, const char* name, Rows rows, CUcontext to, CUcontext from, Sync sync) {
  Driver& d = driver();
  Peers peers;
  std::vector<Context*> involved;
  CUresult error = CUDA_SUCCESS;
  {
    const Lock lock(d.lock);
    USE_CONTEXT(context);
    peers = {context_from(to), context_from(from)};
    if (!peers.to || !peers.to->alive || !peers.from || !peers.from->alive) return CUDA_ERROR_INVALID_CONTEXT;
    if (sync == Sync::wait)
      if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;
    if (sync == Sync::wait && (peers.to != context || peers.from != context)) {
      // It follows all work of the three contexts, and all their later work follows it.
      involved = {context, peers.to, peers.from};
      Queue* queue = queue_of(stream, &error);
      if (!queue) return error;
      for (Context* one : involved) {
        if (one->error) return one->error;
        if (const CUresult forbidden = forbid_in_capture(*one)) return forbidden;
      }
      for (Context* one : involved) wait_for_record(*queue, *record_on_context(*one));
    }
  }
  if (const CUresult failed = copy(stream, name, rows, Side::device, Side::device, sync, peers)) return failed;
  if (involved.empty()) return CUDA_SUCCESS;
  const Lock lock(d.lock);
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  const auto record = record_on(*queue);
  for (Context* one : involved)
    if (one->alive) wait_for_record(*one, record);
  return CUDA_SUCCESS;
}

CUresult fill(CUstream stream, const char* name, CUdeviceptr dst, uint64_t pitch, uint32_t value, unsigned width_bytes,
              uint64_t width, uint64_t height, Sync sync) {
  if (dst % width_bytes || (height > 1 && pitch % width_bytes)) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  Lock lock(d.lock);
  USE_CONTEXT(context);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (width > UINT64_MAX / width_bytes) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row_bytes = width * width_bytes;
  if (height > 1 && pitch < row_bytes) return CUDA_ERROR_INVALID_VALUE;
  const Place place = place_of(dst, pitch * (height - 1) + row_bytes, Side::device);
  if (place == Place::wrong) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<Fill>(name, value, width_bytes);
  work->bytes_touched = row_bytes * height;
  for (uint64_t row = 0; row < height; ++row)
    work->operands.push_back({dst + row * pitch, row_bytes, AccessKind::write, false});
  // Fills of device memory are never waited for, whatever their name says; those of pinned memory are.
  if (sync == Sync::async || place == Place::device) return submit_locked(*queue, std::move(work));
  if (const CUresult forbidden = forbid_unsafe_call()) return forbidden;
  if (const CUresult forbidden = forbid_legacy_in_capture(*queue)) return forbidden;
  Context& owner = *queue->context;
  enqueue(*queue, std::move(work), {}, true);
  host_wait(lock, *queue);
  return owner.error;
}

Rows line(uint64_t dst, uint64_t src, size_t bytes) { return {dst, bytes, src, bytes, bytes, 1}; }
uint64_t va(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, const char* name, Sync sync) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  const auto side = [](CUmemorytype type, const void* host, CUdeviceptr device, Side* out, uint64_t* base) {
    switch (type) {
      case CU_MEMORYTYPE_HOST: *out = Side::host; *base = va(host); return true;
      case CU_MEMORYTYPE_DEVICE: *out = Side::device; *base = device; return true;
      case CU_MEMORYTYPE_UNIFIED: *out = Side::any; *base = device; return true;
      default: return false;
    }
  };
  Side to = Side::any, from = Side::any;
  Rows rows;
  if (!side(c->dstMemoryType, c->dstHost, c->dstDevice, &to, &rows.dst) ||
      !side(c->srcMemoryType, c->srcHost, c->srcDevice, &from, &rows.src))
    return CUDA_ERROR_NOT_SUPPORTED;
  rows.width = c->WidthInBytes;
  rows.height = c->Height;
  rows.dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
  rows.src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
  if (rows.dst_pitch < c->dstXInBytes + rows.width || rows.src_pitch < c->srcXInBytes + rows.width)
    return CUDA_ERROR_INVALID_VALUE;
  rows.dst += c->dstY * rows.dst_pitch + c->dstXInBytes;
  rows.src += c->srcY * rows.src_pitch + c->srcXInBytes;
  return copy(stream, name, rows, to, from, sync);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr dst, const void* src, size_t bytes) {
  ENTER(cuMemcpyHtoD);
  return copy(nullptr, "cuMemcpyHtoD", line(dst, va(src), bytes), Side::device, Side::host, Sync::wait);
}
CUresult CUDAAPI cuMemcpyDtoH(void* dst, CUdeviceptr src, size_t bytes) {
  ENTER(cuMemcpyDtoH);
  return copy(nullptr, "cuMemcpyDtoH", line(va(dst), src, bytes), Side::host, Side::device, Sync::wait);
}
CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  ENTER(cuMemcpyDtoD);
  return copy(nullptr, "cuMemcpyDtoD", line(dst, src, bytes), Side::device, Side::device, Sync::wait);
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  ENTER(cuMemcpy);
  return copy(nullptr, "cuMemcpy", line(dst, src, bytes), Side::any, Side::any, Sync::wait);
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync);
  return copy(stream, "cuMemcpyHtoDAsync", line(dst, va(src), bytes), Side::device, Side::host, Sync::async);
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync);
  return copy(stream, "cuMemcpyDtoHAsync", line(va(dst), src, bytes), Side::host, Side::device, Sync::async);
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync);
  return copy(stream, "cuMemcpyDtoDAsync", line(dst, src, bytes), Side::device, Side::device, Sync::async);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyAsync);
  return copy(stream, "cuMemcpyAsync", line(dst, src, bytes), Side::any, Side::any, Sync::async);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes) {
  ENTER(cuMemcpyPeer);
  return copy_between(nullptr, "cuMemcpyPeer", line(dst, src, bytes), to, from, Sync::wait);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                                   CUstream stream) {
  ENTER(cuMemcpyPeerAsync);
  return copy_between(stream, "cuMemcpyPeerAsync", line(dst, src, bytes), to, from, Sync::async);
}

CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D* c) {
  ENTER(cuMemcpy2D);
  return copy_2d(c, nullptr, "cuMemcpy2D", Sync::wait);
}
CUresult CUDAAPI cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* c) {
  ENTER(cuMemcpy2DUnaligned);
  return copy_2d(c, nullptr, "cuMemcpy2DUnaligned", Sync::wait);
}
CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) {
  ENTER(cuMemcpy2DAsync);
  return copy_2d(c, stream, "cuMemcpy2DAsync", Sync::async);
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t n) {
  ENTER(cuMemsetD8);
  return fill(nullptr, "cuMemsetD8", dst, 0, value, 1, n, 1, Sync::wait);
}
CUresult CUDAAPI cuMemsetD16(CUdeviceptr dst, unsigned short value, size_t n) {
  ENTER(cuMemsetD16);
  return fill(nullptr, "cuMemsetD16", dst, 0, value, 2, n, 1, Sync::wait);
}
CUresult CUDAAPI cuMemsetD32(CUdeviceptr dst, unsigned int value, size_t n) {
  ENTER(cuMemsetD32);
  return fill(nullptr, "cuMemsetD32", dst, 0, value, 4, n, 1, Sync::wait);
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream) {
  ENTER(cuMemsetD8Async);
  return fill(stream, "cuMemsetD8Async", dst, 0, value, 1, n, 1, Sync::async);
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream) {
  ENTER(cuMemsetD16Async);
  return fill(stream, "cuMemsetD16Async", dst, 0, value, 2, n, 1, Sync::async);
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream) {
  ENTER(cuMemsetD32Async);
  return fill(stream, "cuMemsetD32Async", dst, 0, value, 4, n, 1, Sync::async);
}
CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr dst, cuuint32_t value, unsigned int) {
  ENTER(cuStreamWriteValue32);
  return fill(stream, "cuStreamWriteValue32", dst, 0, value, 4, 1, 1, Sync::async);
}
CUresult CUDAAPI cuMemsetD2D8(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height) {
  ENTER(cuMemsetD2D8);
  return fill(nullptr, "cuMemsetD2D8", dst, pitch, value, 1, width, height, Sync::wait);
}
CUresult CUDAAPI cuMemsetD2D16(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height) {
  ENTER(cuMemsetD2D16);
  return fill(nullptr, "cuMemsetD2D16", dst, pitch, value, 2, width, height, Sync::wait);
}
CUresult CUDAAPI cuMemsetD2D32(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height) {
  ENTER(cuMemsetD2D32);
  return fill(nullptr, "cuMemsetD2D32", dst, pitch, value, 4, width, height, Sync::wait);
}
CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
                                   CUstream stream) {
  ENTER(cuMemsetD2D8Async);
  return fill(stream, "cuMemsetD2D8Async", dst, pitch, value, 1, width, height, Sync::async);
}
CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
                                    CUstream stream) {
  ENTER(cuMemsetD2D16Async);
  return fill(stream, "cuMemsetD2D16Async", dst, pitch, value, 2, width, height, Sync::async);
}
CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
                                    CUstream stream) {
  ENTER(cuMemsetD2D32Async);
  return fill(stream, "cuMemsetD2D32Async", dst, pitch, value, 4, width, height, Sync::async);
}

}  // extern "C"
