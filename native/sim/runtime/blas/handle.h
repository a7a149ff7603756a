// The handles of cuBLAS.
#pragma once

#include <cstddef>

#include "operation.h"

namespace memxblas {

struct Handle {
  CUstream stream = nullptr;
  int pointer_mode = 0, atomics_mode = 0, math_mode = 0, sm_target = 0;
};

Handle* handle_from(const void* argument);  // null if it is none

}  // namespace memxblas
