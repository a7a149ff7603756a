// Kernels compute nothing, so a single value that a program reads back after one, the number of elements found or a
// loss, would be whatever its memory held before. Such values read 0: then shapes that depend on data come out empty.
// What was copied or set as a whole at just that place stays what it is, and so does whatever is read in one piece
// that is larger than a single value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memxrt {

inline constexpr size_t kSingleValueBytes = 16;

void kernel_queued();
// A copy or fill of device memory; `known`: what it wrote is.
void value_written(uint64_t at, size_t bytes, bool known);
// Allocations, so that nothing is remembered of memory that is gone.
void memory_given(uint64_t at, size_t bytes);
void memory_taken(uint64_t at);
// Whether these bytes, no more than a single value, are a kernel's result for all that is known.
bool value_unknown(uint64_t at, size_t bytes);

}  // namespace memxrt
