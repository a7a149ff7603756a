// What the native programs share: refusing to go on after an error, and launching the built-in kernels.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "memx_sim.h"

inline void fail(const char* what, int code, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s: %d\n", file, line, what, code);
  std::abort();
}
#define CHECK(call)                                             \
  do {                                                          \
    const int check_ = (call);                                  \
    if (check_) fail(#call, check_, __FILE__, __LINE__);        \
  } while (0)
#define EXPECT(condition) \
  do {                    \
    if (!(condition)) fail(#condition, 0, __FILE__, __LINE__); \
  } while (0)

struct Kernels {
  CUmodule module = nullptr;
  CUfunction stamp = nullptr, verify = nullptr, touch = nullptr;

  Kernels() {
    CHECK(cuModuleLoadData(&module, "memx_stamp memx_verify memx_touch"));
    CHECK(cuModuleGetFunction(&stamp, module, "memx_stamp"));
    CHECK(cuModuleGetFunction(&verify, module, "memx_verify"));
    CHECK(cuModuleGetFunction(&touch, module, "memx_touch"));
  }

  static void launch(CUfunction function, CUstream stream, void** parameters) {
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  }
  void stamp_on(CUstream stream, uint64_t va, uint64_t bytes, uint64_t seed) const {
    uint64_t offset = 0;
    void* parameters[] = {&va, &bytes, &seed, &offset};
    launch(stamp, stream, parameters);
  }
  void verify_on(CUstream stream, uint64_t va, uint64_t bytes, uint64_t seed, uint64_t mismatches) const {
    uint64_t offset = 0;
    void* parameters[] = {&va, &bytes, &seed, &offset, &mismatches};
    launch(verify, stream, parameters);
  }
  void touch_on(CUstream stream, uint64_t va, uint64_t bytes, uint32_t write) const {
    void* parameters[] = {&va, &bytes, &write};
    launch(touch, stream, parameters);
  }
};

inline CUmemAllocationProp device_memory(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return prop;
}
