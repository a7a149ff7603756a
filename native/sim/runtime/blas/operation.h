// What the stand-ins for cuBLAS do in place of arithmetic: they keep their place in the stream, as a kernel that bears
// the function's name, and are counted by it.
#pragma once

#include <cuda.h>

#include <atomic>

#define BLAS_API extern "C" __attribute__((visibility("default")))

namespace memxblas {

enum Status { kSuccess = 0, kNotInitialized = 1, kAllocFailed = 3, kInvalidValue = 7, kExecutionFailed = 13 };

// One a function, never destroyed.
struct Operation {
  const char* name;
  std::atomic<CUkernel> kernel{nullptr};

  Status queue(CUstream stream);
  Status count() const;  // where no stream is known
};

// Makes a context current as the runtime would.
Status use_context();
const char* status_name(int status);

}  // namespace memxblas
