// Declared without cuda.h: on this ABI a function that ignores its arguments may be called with any.
#include "unsupported.h"

extern "C" int memxsim_unsupported(const char* name);

#define UNSUPPORTED_FUNCTIONS(F)                                                                                    \
  F(cuMulticastCreate) F(cuMulticastAddDevice) F(cuMulticastBindMem) F(cuMulticastBindAddr) F(cuMulticastUnbind)    \
  F(cuMulticastGetGranularity) F(cuStreamWaitValue32) F(cuStreamWaitValue64) F(cuStreamBatchMemOp)                  \
  F(cuIpcGetEventHandle) F(cuIpcOpenEventHandle) F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle) F(cuIpcCloseMemHandle)  \
  F(cuMemPrefetchAsync) F(cuMemAdvise) F(cuMemRangeGetAttribute) F(cuMemRangeGetAttributes)                         \
  F(cuMemGetHandleForAddressRange) F(cuMemMapArrayAsync) F(cuMemPoolExportToShareableHandle)                        \
  F(cuMemPoolImportFromShareableHandle) F(cuMemPoolExportPointer) F(cuMemPoolImportPointer) F(cuArrayCreate)        \
  F(cuArray3DCreate) F(cuArrayDestroy) F(cuArrayGetDescriptor) F(cuArray3DGetDescriptor) F(cuMipmappedArrayCreate)  \
  F(cuMipmappedArrayDestroy) F(cuMemcpy3D) F(cuMemcpy3DAsync) F(cuMemcpy3DPeer) F(cuMemcpy3DPeerAsync)              \
  F(cuMemcpyBatchAsync) F(cuMemcpy3DBatchAsync) F(cuTexObjectCreate) F(cuTexObjectDestroy) F(cuSurfObjectCreate)    \
  F(cuSurfObjectDestroy) F(cuModuleGetGlobal) F(cuLibraryGetGlobal) F(cuLibraryGetManaged)                          \
  F(cuLibraryGetUnifiedFunction) F(cuLinkCreate) F(cuLinkAddData) F(cuLinkAddFile) F(cuLinkComplete)                \
  F(cuLinkDestroy) F(cuImportExternalMemory) F(cuDestroyExternalMemory) F(cuImportExternalSemaphore)                \
  F(cuDestroyExternalSemaphore) F(cuSignalExternalSemaphoresAsync) F(cuWaitExternalSemaphoresAsync)                 \
  F(cuGreenCtxCreate) F(cuGreenCtxDestroy) F(cuCtxFromGreenCtx) F(cuDeviceGetDevResource)                           \
  F(cuDevResourceGenerateDesc) F(cuDevSmResourceSplitByCount) F(cuGetExportTable)

#define DEFINE(name)                                                          \
  extern "C" __attribute__((visibility("default"))) int name();               \
  int name() { return memxsim_unsupported(#name); }
UNSUPPORTED_FUNCTIONS(DEFINE)
#undef DEFINE

namespace memxsim {

const std::vector<Unsupported>& unsupported_functions() {
#define ENTRY(name) {#name, reinterpret_cast<void*>(&name)},
  static const auto* all = new std::vector<Unsupported>{UNSUPPORTED_FUNCTIONS(ENTRY)};
#undef ENTRY
  return *all;
}

}  // namespace memxsim
