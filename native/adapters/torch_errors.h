// Throws PyTorch's own c10::OutOfMemoryError without its headers: constructor, vtable and type information are those of
// the libc10.so that is in the process.
#pragma once

#include <string>

namespace memx::torch {

// Throws std::runtime_error, beginning with the same words, where the type cannot be had.
[[noreturn]] void throw_out_of_memory(const std::string& message);

}  // namespace memx::torch
