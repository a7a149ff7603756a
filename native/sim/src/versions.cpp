#include "versions.h"

#include <unordered_map>

namespace memxsim {

int introduced_in(const std::string& function) {
  static const auto* versions = new std::unordered_map<std::string, int>{
      {"cuMemAddressReserve", 10020},
      {"cuMemAddressFree", 10020},
      {"cuMemCreate", 10020},
      {"cuMemRelease", 10020},
      {"cuMemMap", 10020},
      {"cuMemUnmap", 10020},
      {"cuMemSetAccess", 10020},
      {"cuMemGetAccess", 10020},
      {"cuMemGetAllocationGranularity", 10020},
      {"cuMemGetAllocationPropertiesFromHandle", 10020},
      {"cuMemExportToShareableHandle", 10020},
      {"cuMemImportFromShareableHandle", 10020},
      {"cuMemRetainAllocationHandle", 11000},
      {"cuEventRecordWithFlags", 11010},
      {"cuMemAllocAsync", 11020},
      {"cuMemAllocFromPoolAsync", 11020},
      {"cuMemFreeAsync", 11020},
      {"cuDeviceGetMemPool", 11020},
      {"cuDeviceSetMemPool", 11020},
      {"cuDeviceGetDefaultMemPool", 11020},
      {"cuMemPoolCreate", 11020},
      {"cuMemPoolDestroy", 11020},
      {"cuMemPoolTrimTo", 11020},
      {"cuMemPoolGetAttribute", 11020},
      {"cuMemPoolSetAttribute", 11020},
      {"cuMemPoolGetAccess", 11020},
      {"cuMemPoolSetAccess", 11020},
      {"cuStreamUpdateCaptureDependencies", 11030},
      {"cuLaunchKernelEx", 11080},
      {"cuStreamGetId", 12000},
      {"cuCtxGetId", 12000},
      {"cuLibraryLoadData", 12000},
      {"cuLibraryLoadFromFile", 12000},
      {"cuLibraryUnload", 12000},
      {"cuLibraryGetKernel", 12000},
      {"cuLibraryGetModule", 12000},
      {"cuKernelGetFunction", 12000},
      {"cuKernelGetAttribute", 12000},
      {"cuKernelSetAttribute", 12000},
      {"cuGraphInstantiateWithParams", 12000},
      {"cuMulticastCreate", 12010},
      {"cuCtxSetFlags", 12010},
      {"cuFuncGetName", 12030},
      {"cuKernelGetName", 12030},
      {"cuKernelGetParamInfo", 12040},
      {"cuFuncGetParamInfo", 12040},
      {"cuFuncIsLoaded", 12040},
      {"cuFuncLoad", 12040},
      {"cuLibraryGetKernelCount", 12040},
      {"cuKernelGetLibrary", 12050},
      {"cuCtxRecordEvent", 12050},
      {"cuCtxWaitEvent", 12050},
      {"cuStreamGetDevice", 12080},
      {"cuMemcpyBatchAsync", 12080},
      {"cuMemGetMemPool", 13000},
      {"cuMemSetMemPool", 13000},
      {"cuMemGetDefaultMemPool", 13000},
  };
  const auto found = versions->find(function);
  return found == versions->end() ? 0 : found->second;
}

}  // namespace memxsim
