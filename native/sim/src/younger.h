// Names of the driver API that are younger than the oldest header memx builds with (CUDA 13.0). Where the header at
// hand declares them too, they agree.
#pragma once

#include <cuda.h>

#include <utility>

namespace memxsim::younger {

inline constexpr std::pair<int, const char*> kErrors[] = {{47, "CUDA_ERROR_MULTICAST_RESOURCE_FULL"},
                                                          {227, "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION"},
                                                          {917, "CUDA_ERROR_STREAM_DETACHED"},
                                                          {918, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE"},
                                                          {919, "CUDA_ERROR_FABRIC_NOT_READY"}};

enum PoolAttribute { kAllocationType = 9, kExportHandleTypes, kLocationId, kLocationType, kMaxPoolSize };

inline constexpr int kOnlyPartialAtomics = 5;  // CUdevice_P2PAttribute

}  // namespace memxsim::younger

extern "C" {
CUresult CUDAAPI cuFuncGetParamCount(CUfunction function, size_t* count);
CUresult CUDAAPI cuKernelGetParamCount(CUkernel kernel, size_t* count);
}
