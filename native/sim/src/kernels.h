// Kernels: those that the simulator runs, made from launch parameters; and the functions that programs load.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "stream.h"

namespace memxsim {

struct Parameter {
  uint8_t offset, bytes;
};

// Makes the work from parameters laid out as a kernel's parameter buffer.
using KernelMaker = WorkRef (*)(const unsigned char* parameters);

struct KernelKind {
  const char* name;
  std::vector<Parameter> parameters;
  KernelMaker make;
};

const KernelKind* built_in_kernel(const std::string& name);
WorkRef unknown_kernel(const char* name);

// The pattern that memx_stamp writes and memx_verify expects: `at` is the first byte's index in the buffer.
void write_pattern(char* data, uint64_t bytes, uint64_t seed, uint64_t at);
uint64_t count_mismatches(const char* data, uint64_t bytes, uint64_t seed, uint64_t at);

}  // namespace memxsim
