// Simulated memory as host code can look at it: its pages mapped once more, next to each other. With the driver's
// lock held.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace memxsim {

// INVALID_VALUE if there is memory missing in the range, NOT_SUPPORTED if it is the program's own or has no contents.
CUresult open_view(uint64_t va, uint64_t bytes, void** out);
bool close_view(void* view);

}  // namespace memxsim
