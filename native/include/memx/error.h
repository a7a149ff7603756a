// The one exception type of the core. Bindings turn each kind into its Python class.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace memx {

enum class ErrorKind {
  kOutOfMemory,   // a limit, or the driver's own OUT_OF_MEMORY
  kInvalidValue,  // an argument that no state would make right
  kInvalidState,  // right, but not now
  kDriver,        // a driver call failed for another reason
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, CUresult code = CUDA_SUCCESS, const char* call = "")
      : std::runtime_error(message), kind(kind), code(code), call(call) {}
  ErrorKind kind;
  CUresult code;
  const char* call;
};

// "1.5 MiB": sizes in messages.
std::string format_bytes(unsigned long long bytes);

}  // namespace memx
