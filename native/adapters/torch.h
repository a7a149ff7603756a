// memx below PyTorch's CUDAPluggableAllocator: the C functions that it calls, and one resource a device for them.
//
// PyTorch calls from many threads, mostly without the GIL; nothing here takes it. Errors of an allocation leave as
// c10::OutOfMemoryError, which PyTorch turns into torch.OutOfMemoryError; a free never throws. The resources live until the
// process ends: tensors are freed at any moment of the exit.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "memx/resource.h"

namespace memx::torch {

// Before the first allocation: what every device's resource is made with. Limits per device.
void configure(const Config& config);
// Resources made from here on record their events from the first.
void record_from_birth();
// The device's resource, made on first use. Every device that was made before can reach it if the hardware allows, and it them.
Resource& resource(int device);
// The devices that have one.
std::map<int, Resource*> resources();
// Name of each hook in PyTorch, and the address to give it.
std::map<std::string, std::uint64_t> hooks();

}  // namespace memx::torch
