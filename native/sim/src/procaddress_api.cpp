// cuGetProcAddress: base names, the version of the interface that the caller was built for, and the form of the
// default stream that it wants.
#include <algorithm>
#include <climits>
#include <string>
#include <unordered_map>
#include <vector>

#include "context.h"
#include "unsupported.h"
#include "versions.h"
#include "younger.h"

using namespace memxsim;

extern "C" {
CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
CUresult CUDAAPI cuCtxCreate_v3(CUcontext*, CUexecAffinityParam*, int, unsigned int, CUdevice);
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice*, CUcontext);
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext);
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream, CUhostFn, void*, unsigned int);
CUresult CUDAAPI cuStreamGetCaptureInfo_v1(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*);
CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v1(CUstream, CUgraphNode*, size_t, unsigned int);
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
CUresult CUDAAPI cuGetProcAddress_v1(const char*, void**, int, cuuint64_t);
}

namespace {

struct Form {
  int since = 0;  // the first version with this interface
  void* legacy = nullptr;
  void* per_thread = nullptr;  // where stream 0 is the calling thread's
};

using Table = std::unordered_map<std::string, std::vector<Form>>;

// The same function with the thread's own default stream in place of stream 0.
template <auto function>
struct PerThread;
template <typename... Arguments, CUresult (*function)(Arguments...)>
struct PerThread<function> {
  static CUresult call(Arguments... arguments) {
    const PerThreadDefault scope;
    return function(arguments...);
  }
};

template <auto function>
Form form(int since) {
  return {since, reinterpret_cast<void*>(function), reinterpret_cast<void*>(&PerThread<function>::call)};
}

// `name` is expanded in the call and not in the string: the header maps base names to their newest forms.
#define PLAIN(name) table[#name].push_back(form<&name>(0));
#define SINCE(name, version, function) table[name].push_back(form<&function>(version));

Table make_table() {
  Table table;
  for (const Unsupported& entry : unsupported_functions()) table[entry.name].push_back({0, entry.function, entry.function});
  PLAIN(cuCtxDestroy)
  PLAIN(cuCtxDisablePeerAccess)
  PLAIN(cuCtxEnablePeerAccess)
  PLAIN(cuCtxGetApiVersion)
  PLAIN(cuCtxGetCacheConfig)
  PLAIN(cuCtxGetCurrent)
  PLAIN(cuCtxGetDevice)
  PLAIN(cuCtxGetFlags)
  PLAIN(cuCtxGetId)
  PLAIN(cuCtxGetLimit)
  PLAIN(cuCtxGetStreamPriorityRange)
  PLAIN(cuCtxPopCurrent)
  PLAIN(cuCtxPushCurrent)
  PLAIN(cuCtxRecordEvent)
  PLAIN(cuCtxSetCacheConfig)
  PLAIN(cuCtxSetCurrent)
  PLAIN(cuCtxSetFlags)
  PLAIN(cuCtxSetLimit)
  PLAIN(cuCtxSynchronize)
  PLAIN(cuCtxWaitEvent)
  PLAIN(cuDeviceCanAccessPeer)
  PLAIN(cuDeviceComputeCapability)
  PLAIN(cuDeviceGet)
  PLAIN(cuDeviceGetAttribute)
  PLAIN(cuDeviceGetByPCIBusId)
  PLAIN(cuDeviceGetCount)
  PLAIN(cuDeviceGetDefaultMemPool)
  PLAIN(cuDeviceGetExecAffinitySupport)
  PLAIN(cuDeviceGetLuid)
  PLAIN(cuDeviceGetMemPool)
  PLAIN(cuDeviceGetName)
  PLAIN(cuDeviceGetP2PAttribute)
  PLAIN(cuDeviceGetPCIBusId)
  PLAIN(cuDeviceGetUuid)
  PLAIN(cuDevicePrimaryCtxGetState)
  PLAIN(cuDevicePrimaryCtxRelease)
  PLAIN(cuDevicePrimaryCtxReset)
  PLAIN(cuDevicePrimaryCtxRetain)
  PLAIN(cuDevicePrimaryCtxSetFlags)
  PLAIN(cuDeviceSetMemPool)
  PLAIN(cuDeviceTotalMem)
  PLAIN(cuDriverGetVersion)
  PLAIN(cuEventCreate)
  PLAIN(cuEventDestroy)
  PLAIN(cuEventQuery)
  PLAIN(cuEventRecord)
  PLAIN(cuEventRecordWithFlags)
  PLAIN(cuEventSynchronize)
  PLAIN(cuFuncGetAttribute)
  PLAIN(cuFuncGetModule)
  PLAIN(cuFuncGetName)
  PLAIN(cuFuncGetParamCount)
  PLAIN(cuFuncGetParamInfo)
  PLAIN(cuKernelGetParamCount)
  PLAIN(cuFuncIsLoaded)
  PLAIN(cuFuncLoad)
  PLAIN(cuFuncSetAttribute)
  PLAIN(cuFuncSetCacheConfig)
  PLAIN(cuGetErrorName)
  PLAIN(cuGetErrorString)
  PLAIN(cuInit)
  PLAIN(cuKernelGetAttribute)
  PLAIN(cuKernelGetFunction)
  PLAIN(cuKernelGetLibrary)
  PLAIN(cuKernelGetName)
  PLAIN(cuKernelGetParamInfo)
  PLAIN(cuKernelSetAttribute)
  PLAIN(cuLaunchCooperativeKernel)
  PLAIN(cuLaunchHostFunc)
  PLAIN(cuLaunchKernel)
  PLAIN(cuLaunchKernelEx)
  PLAIN(cuLibraryGetKernel)
  PLAIN(cuLibraryGetKernelCount)
  PLAIN(cuLibraryGetModule)
  PLAIN(cuLibraryLoadData)
  PLAIN(cuLibraryLoadFromFile)
  PLAIN(cuLibraryUnload)
  PLAIN(cuMemAddressFree)
  PLAIN(cuMemAddressReserve)
  PLAIN(cuMemAlloc)
  PLAIN(cuMemAllocAsync)
  PLAIN(cuMemAllocFromPoolAsync)
  PLAIN(cuMemAllocHost)
  PLAIN(cuMemAllocManaged)
  PLAIN(cuMemAllocPitch)
  PLAIN(cuMemCreate)
  PLAIN(cuMemExportToShareableHandle)
  PLAIN(cuMemFree)
  PLAIN(cuMemFreeAsync)
  PLAIN(cuMemFreeHost)
  PLAIN(cuMemGetAccess)
  PLAIN(cuMemGetAddressRange)
  PLAIN(cuMemGetAllocationGranularity)
  PLAIN(cuMemGetAllocationPropertiesFromHandle)
  PLAIN(cuMemGetDefaultMemPool)
  PLAIN(cuMemGetInfo)
  PLAIN(cuMemGetMemPool)
  PLAIN(cuMemHostAlloc)
  PLAIN(cuMemHostGetDevicePointer)
  PLAIN(cuMemHostGetFlags)
  PLAIN(cuMemHostRegister)
  PLAIN(cuMemHostUnregister)
  PLAIN(cuMemImportFromShareableHandle)
  PLAIN(cuMemMap)
  PLAIN(cuMemPoolCreate)
  PLAIN(cuMemPoolDestroy)
  PLAIN(cuMemPoolGetAccess)
  PLAIN(cuMemPoolGetAttribute)
  PLAIN(cuMemPoolSetAccess)
  PLAIN(cuMemPoolSetAttribute)
  PLAIN(cuMemPoolTrimTo)
  PLAIN(cuMemRelease)
  PLAIN(cuMemRetainAllocationHandle)
  PLAIN(cuMemSetAccess)
  PLAIN(cuMemSetMemPool)
  PLAIN(cuMemUnmap)
  PLAIN(cuMemcpy)
  PLAIN(cuMemcpy2D)
  PLAIN(cuMemcpy2DAsync)
  PLAIN(cuMemcpy2DUnaligned)
  PLAIN(cuMemcpyAsync)
  PLAIN(cuMemcpyDtoD)
  PLAIN(cuMemcpyDtoDAsync)
  PLAIN(cuMemcpyDtoH)
  PLAIN(cuMemcpyDtoHAsync)
  PLAIN(cuMemcpyHtoD)
  PLAIN(cuMemcpyHtoDAsync)
  PLAIN(cuMemcpyPeer)
  PLAIN(cuMemcpyPeerAsync)
  PLAIN(cuMemsetD16)
  PLAIN(cuMemsetD16Async)
  PLAIN(cuMemsetD2D16)
  PLAIN(cuMemsetD2D16Async)
  PLAIN(cuMemsetD2D32)
  PLAIN(cuMemsetD2D32Async)
  PLAIN(cuMemsetD2D8)
  PLAIN(cuMemsetD2D8Async)
  PLAIN(cuMemsetD32)
  PLAIN(cuMemsetD32Async)
  PLAIN(cuMemsetD8)
  PLAIN(cuMemsetD8Async)
  PLAIN(cuModuleGetFunction)
  PLAIN(cuModuleGetLoadingMode)
  PLAIN(cuModuleLoad)
  PLAIN(cuModuleLoadData)
  PLAIN(cuModuleLoadDataEx)
  PLAIN(cuModuleLoadFatBinary)
  PLAIN(cuModuleUnload)
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessor)
  PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
  PLAIN(cuOccupancyMaxPotentialBlockSize)
  PLAIN(cuPointerGetAttribute)
  PLAIN(cuPointerGetAttributes)
  PLAIN(cuPointerSetAttribute)
  PLAIN(cuStreamAddCallback)
  PLAIN(cuStreamAttachMemAsync)
  PLAIN(cuStreamCreate)
  PLAIN(cuStreamCreateWithPriority)
  PLAIN(cuStreamDestroy)
  PLAIN(cuStreamGetCtx)
  PLAIN(cuStreamGetDevice)
  PLAIN(cuStreamGetFlags)
  PLAIN(cuStreamGetId)
  PLAIN(cuStreamGetPriority)
  PLAIN(cuStreamQuery)
  PLAIN(cuStreamSynchronize)
  PLAIN(cuStreamWaitEvent)
  PLAIN(cuStreamIsCapturing)
  PLAIN(cuThreadExchangeStreamCaptureMode)
  PLAIN(cuStreamWriteValue32)
  SINCE("cuCtxCreate", 3020, cuCtxCreate_v2)
  SINCE("cuCtxCreate", 11040, cuCtxCreate_v3)
  SINCE("cuCtxCreate", 12050, cuCtxCreate_v4)
  SINCE("cuCtxGetDevice", 13000, cuCtxGetDevice_v2)
  SINCE("cuCtxSynchronize", 13000, cuCtxSynchronize_v2)
  SINCE("cuStreamGetCtx", 12050, cuStreamGetCtx_v2)
  SINCE("cuLaunchHostFunc", 13020, cuLaunchHostFunc_v2)
  SINCE("cuEventElapsedTime", 0, cuEventElapsedTime_v2)
  PLAIN(cuStreamEndCapture)
  PLAIN(cuGraphCreate)
  PLAIN(cuGraphDestroy)
  PLAIN(cuDeviceGetGraphMemAttribute)
  PLAIN(cuDeviceGraphMemTrim)
  PLAIN(cuDeviceSetGraphMemAttribute)
  PLAIN(cuGraphAddMemAllocNode)
  PLAIN(cuGraphAddMemFreeNode)
  PLAIN(cuGraphClone)
  PLAIN(cuGraphMemAllocNodeGetParams)
  PLAIN(cuGraphMemFreeNodeGetParams)
  PLAIN(cuGraphReleaseUserObject)
  PLAIN(cuGraphRetainUserObject)
  PLAIN(cuUserObjectCreate)
  PLAIN(cuUserObjectRelease)
  PLAIN(cuUserObjectRetain)
  PLAIN(cuGraphInstantiateWithFlags)
  PLAIN(cuGraphInstantiateWithParams)
  PLAIN(cuGraphUpload)
  PLAIN(cuGraphLaunch)
  PLAIN(cuGraphExecDestroy)
  PLAIN(cuGraphGetNodes)
  PLAIN(cuGraphGetRootNodes)
  PLAIN(cuGraphNodeGetType)
  SINCE("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2)
  SINCE("cuStreamGetCaptureInfo", 10010, cuStreamGetCaptureInfo_v1)
  SINCE("cuStreamGetCaptureInfo", 11030, cuStreamGetCaptureInfo_v2)
  SINCE("cuStreamGetCaptureInfo", 12030, cuStreamGetCaptureInfo_v3)
  SINCE("cuStreamUpdateCaptureDependencies", 11030, cuStreamUpdateCaptureDependencies_v1)
  SINCE("cuStreamUpdateCaptureDependencies", 12030, cuStreamUpdateCaptureDependencies_v2)
  SINCE("cuGraphInstantiate", 11000, cuGraphInstantiate_v2)
  SINCE("cuGraphInstantiate", 12000, cuGraphInstantiateWithFlags)
  SINCE("cuGraphGetEdges", 12030, cuGraphGetEdges_v2)
  SINCE("cuGraphNodeGetDependencies", 12030, cuGraphNodeGetDependencies_v2)
  table["cuGetProcAddress"] = {{0, reinterpret_cast<void*>(&cuGetProcAddress_v1), nullptr},
                               {12000, reinterpret_cast<void*>(&cuGetProcAddress_v2), nullptr}};
  return table;
}

const Table& table() {
  static const auto* made = new Table(make_table());
  return *made;
}

CUresult look_up(const char* symbol, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (!symbol || !out) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (per_thread && (flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM)) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const auto answer = [&](CUdriverProcAddressQueryResult result, CUresult code) {
    if (status) *status = result;
    return status && code == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : code;
  };
  const auto found = table().find(symbol);
  if (found == table().end()) return answer(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
  // An older driver lacks newer interfaces; the newest simulated has all, later ones than its number too.
  const int have = g_version < kNewestVersion ? g_version.load() : INT_MAX;
  if (introduced_in(symbol) > have) return answer(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
  const int limit = std::min(version, have);
  const Form* best = nullptr;
  for (const Form& form : found->second)
    if (form.since <= limit && (!best || form.since >= best->since)) best = &form;
  if (!best) return answer(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, CUDA_ERROR_NOT_FOUND);
  *out = per_thread && best->per_thread ? best->per_thread : best->legacy;
  return answer(CU_GET_PROC_ADDRESS_SUCCESS, CUDA_SUCCESS);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  return look_up(symbol, out, version, flags, status);
}

// The old form, without a status; the header has no name of its own for it.
CUresult CUDAAPI cuGetProcAddress_v1(const char* symbol, void** out, int version, cuuint64_t flags) {
  return look_up(symbol, out, version, flags, nullptr);
}

}  // extern "C"
