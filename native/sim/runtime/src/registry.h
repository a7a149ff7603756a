// What compiled programs register as they are loaded: images with kernels and device variables, known by the address
// of their stand-ins on the host. Nothing is given to the driver before it is first used.
#pragma once

#include <cstddef>

#include "runtime.h"

namespace memxrt {

struct Image;

Image* add_image(const void* wrapper);
void remove_image(Image* image);
void add_kernel(Image* image, const void* host, const char* name);
void add_variable(Image* image, const void* host, const char* name, size_t bytes);

// The driver's kernel behind a host address, or the kernel itself where a program holds one.
cudaError_t find_kernel(const void* host, CUkernel* kernel);
void know_kernel(CUkernel kernel);  // it came from a library that the program loaded

// Dynamic shared memory that launches of the kernel may ask for.
int dynamic_shared_limit(CUkernel kernel);
cudaError_t set_dynamic_shared_limit(CUkernel kernel, int bytes);

// The address of a variable on the current device, allocated at first use; its size.
cudaError_t find_variable(const void* host, CUdeviceptr* at, size_t* bytes);

}  // namespace memxrt
