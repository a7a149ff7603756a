// Functions of the runtime that exist so that programs which link them can start, and answer NOT_SUPPORTED. Declared
// without the header: on this ABI a function that ignores its arguments may be called with any.
namespace memxrt {
int unsupported(const char* name);
}

#define FUNCTIONS(F) \
  F(cudaArrayGetInfo) F(cudaArrayGetMemoryRequirements) F(cudaArrayGetPlane) F(cudaArrayGetSparseProperties)       \
  F(cudaChooseDevice) F(cudaCreateChannelDesc) F(cudaCreateSurfaceObject) F(cudaCreateTextureObject)               \
  F(cudaCtxResetPersistingL2Cache) F(cudaDestroyExternalMemory) F(cudaDestroyExternalSemaphore)                    \
  F(cudaDestroySurfaceObject) F(cudaDestroyTextureObject) F(cudaDevResourceGenerateDesc)                           \
  F(cudaDevSmResourceSplit) F(cudaDevSmResourceSplitByCount) F(cudaDeviceFlushGPUDirectRDMAWrites)                 \
  F(cudaDeviceGetCacheConfig) F(cudaDeviceGetDevResource) F(cudaDeviceGetExecutionCtx)                             \
  F(cudaDeviceGetHostAtomicCapabilities) F(cudaDeviceGetNvSciSyncAttributes)                                       \
  F(cudaDeviceGetP2PAtomicCapabilities) F(cudaDeviceGetSharedMemConfig) F(cudaDeviceGetTexture1DLinearMaxWidth)    \
  F(cudaDeviceRegisterAsyncNotification) F(cudaDeviceSetCacheConfig) F(cudaDeviceSetSharedMemConfig)               \
  F(cudaDeviceUnregisterAsyncNotification) F(cudaExecutionCtxDestroy) F(cudaExecutionCtxGetDevResource)            \
  F(cudaExecutionCtxGetDevice) F(cudaExecutionCtxGetId) F(cudaExecutionCtxRecordEvent)                             \
  F(cudaExecutionCtxStreamCreate) F(cudaExecutionCtxSynchronize) F(cudaExecutionCtxWaitEvent)                      \
  F(cudaExternalMemoryGetMappedBuffer) F(cudaExternalMemoryGetMappedMipmappedArray) F(cudaFreeArray)               \
  F(cudaFreeMipmappedArray) F(cudaFuncGetParamCount) F(cudaFuncGetParamInfo) F(cudaFuncSetSharedMemConfig)         \
  F(cudaGetChannelDesc) F(cudaGetExportTable) F(cudaGetMipmappedArrayLevel) F(cudaGetSurfaceObjectResourceDesc)    \
  F(cudaGetTextureObjectResourceDesc) F(cudaGetTextureObjectResourceViewDesc) F(cudaGetTextureObjectTextureDesc)   \
  F(cudaGraphAddChildGraphNode) F(cudaGraphAddDependencies) F(cudaGraphAddEmptyNode)                               \
  F(cudaGraphAddEventRecordNode) F(cudaGraphAddEventWaitNode) F(cudaGraphAddExternalSemaphoresSignalNode)          \
  F(cudaGraphAddExternalSemaphoresWaitNode) F(cudaGraphAddHostNode) F(cudaGraphAddKernelNode)                      \
  F(cudaGraphAddMemAllocNode) F(cudaGraphAddMemFreeNode) F(cudaGraphAddMemcpyNode) F(cudaGraphAddMemcpyNode1D)     \
  F(cudaGraphAddMemcpyNodeFromSymbol) F(cudaGraphAddMemcpyNodeToSymbol) F(cudaGraphAddMemsetNode)                  \
  F(cudaGraphAddNode) F(cudaGraphChildGraphNodeGetGraph) F(cudaGraphClone) F(cudaGraphConditionalHandleCreate)     \
  F(cudaGraphConditionalHandleCreate_v2) F(cudaGraphDebugDotPrint) F(cudaGraphDestroyNode)                         \
  F(cudaGraphEventRecordNodeGetEvent) F(cudaGraphEventRecordNodeSetEvent) F(cudaGraphEventWaitNodeGetEvent)        \
  F(cudaGraphEventWaitNodeSetEvent) F(cudaGraphExecChildGraphNodeSetParams)                                        \
  F(cudaGraphExecEventRecordNodeSetEvent) F(cudaGraphExecEventWaitNodeSetEvent)                                    \
  F(cudaGraphExecExternalSemaphoresSignalNodeSetParams) F(cudaGraphExecExternalSemaphoresWaitNodeSetParams)        \
  F(cudaGraphExecGetFlags) F(cudaGraphExecGetId) F(cudaGraphExecHostNodeSetParams)                                 \
  F(cudaGraphExecKernelNodeSetParams) F(cudaGraphExecMemcpyNodeSetParams) F(cudaGraphExecMemcpyNodeSetParams1D)    \
  F(cudaGraphExecMemcpyNodeSetParamsFromSymbol) F(cudaGraphExecMemcpyNodeSetParamsToSymbol)                        \
  F(cudaGraphExecMemsetNodeSetParams) F(cudaGraphExecNodeSetParams) F(cudaGraphExecUpdate)                         \
  F(cudaGraphExternalSemaphoresSignalNodeGetParams) F(cudaGraphExternalSemaphoresSignalNodeSetParams)              \
  F(cudaGraphExternalSemaphoresWaitNodeGetParams) F(cudaGraphExternalSemaphoresWaitNodeSetParams)                  \
  F(cudaGraphGetId) F(cudaGraphHostNodeGetParams) F(cudaGraphHostNodeSetParams)                                    \
  F(cudaGraphInstantiateWithParams) F(cudaGraphKernelNodeCopyAttributes) F(cudaGraphKernelNodeGetAttribute)        \
  F(cudaGraphKernelNodeGetParams) F(cudaGraphKernelNodeSetAttribute) F(cudaGraphKernelNodeSetParams)               \
  F(cudaGraphMemAllocNodeGetParams) F(cudaGraphMemFreeNodeGetParams) F(cudaGraphMemcpyNodeGetParams)               \
  F(cudaGraphMemcpyNodeSetParams) F(cudaGraphMemcpyNodeSetParams1D) F(cudaGraphMemcpyNodeSetParamsFromSymbol)      \
  F(cudaGraphMemcpyNodeSetParamsToSymbol) F(cudaGraphMemsetNodeGetParams) F(cudaGraphMemsetNodeSetParams)          \
  F(cudaGraphNodeFindInClone) F(cudaGraphNodeGetContainingGraph) F(cudaGraphNodeGetDependentNodes)                 \
  F(cudaGraphNodeGetEnabled) F(cudaGraphNodeGetLocalId) F(cudaGraphNodeGetParams) F(cudaGraphNodeGetToolsId)       \
  F(cudaGraphNodeSetEnabled) F(cudaGraphNodeSetParams) F(cudaGraphRemoveDependencies)                              \
  F(cudaGraphicsMapResources) F(cudaGraphicsResourceGetMappedMipmappedArray)                                       \
  F(cudaGraphicsResourceGetMappedPointer) F(cudaGraphicsResourceSetMapFlags)                                       \
  F(cudaGraphicsSubResourceGetMappedArray) F(cudaGraphicsUnmapResources) F(cudaGraphicsUnregisterResource)         \
  F(cudaGreenCtxCreate) F(cudaImportExternalMemory) F(cudaImportExternalSemaphore) F(cudaIpcCloseMemHandle)        \
  F(cudaIpcGetEventHandle) F(cudaIpcGetMemHandle) F(cudaIpcOpenEventHandle) F(cudaIpcOpenMemHandle)                \
  F(cudaLaunchHostFunc_v2) F(cudaLibraryEnumerateKernels) F(cudaLibraryGetGlobal) F(cudaLibraryGetKernelCount)     \
  F(cudaLibraryGetManaged) F(cudaLibraryGetUnifiedFunction) F(cudaLibraryLoadFromFile) F(cudaLogsCurrent)          \
  F(cudaLogsDumpToFile) F(cudaLogsDumpToMemory) F(cudaLogsRegisterCallback) F(cudaLogsUnregisterCallback)          \
  F(cudaMalloc3D) F(cudaMalloc3DArray) F(cudaMallocArray) F(cudaMallocMipmappedArray) F(cudaMemAdvise)             \
  F(cudaMemDiscardAndPrefetchBatchAsync) F(cudaMemDiscardBatchAsync) F(cudaMemGetDefaultMemPool)                   \
  F(cudaMemGetLocationInfo) F(cudaMemGetMemPool) F(cudaMemPoolExportPointer)                                       \
  F(cudaMemPoolExportToShareableHandle) F(cudaMemPoolImportFromShareableHandle) F(cudaMemPoolImportPointer)        \
  F(cudaMemPrefetchAsync) F(cudaMemPrefetchBatchAsync) F(cudaMemRangeGetAttribute) F(cudaMemRangeGetAttributes)    \
  F(cudaMemSetMemPool) F(cudaMemcpy2DArrayToArray) F(cudaMemcpy2DArrayToArray_ptds) F(cudaMemcpy2DFromArray)       \
  F(cudaMemcpy2DFromArrayAsync) F(cudaMemcpy2DFromArray_ptds) F(cudaMemcpy2DToArray) F(cudaMemcpy2DToArrayAsync)   \
  F(cudaMemcpy2DToArray_ptds) F(cudaMemcpy2D_ptds) F(cudaMemcpy3D) F(cudaMemcpy3DAsync)                            \
  F(cudaMemcpy3DBatchAsync) F(cudaMemcpy3DPeer) F(cudaMemcpy3DPeerAsync) F(cudaMemcpy3DPeer_ptds)                  \
  F(cudaMemcpy3DWithAttributesAsync) F(cudaMemcpy3D_ptds) F(cudaMemcpyArrayToArray)                                \
  F(cudaMemcpyArrayToArray_ptds) F(cudaMemcpyBatchAsync) F(cudaMemcpyFromArray) F(cudaMemcpyFromArrayAsync)        \
  F(cudaMemcpyFromArray_ptds) F(cudaMemcpyFromSymbol) F(cudaMemcpyFromSymbolAsync) F(cudaMemcpyFromSymbol_ptds)    \
  F(cudaMemcpyToArray) F(cudaMemcpyToArrayAsync) F(cudaMemcpyToArray_ptds) F(cudaMemcpyToSymbolAsync)              \
  F(cudaMemcpyToSymbol_ptds) F(cudaMemcpyWithAttributesAsync) F(cudaMemcpy_ptds) F(cudaMemset2D_ptds)              \
  F(cudaMemset3D) F(cudaMemset3DAsync) F(cudaMemset3D_ptds) F(cudaMemset_ptds)                                     \
  F(cudaMipmappedArrayGetMemoryRequirements) F(cudaMipmappedArrayGetSparseProperties)                              \
  F(cudaOccupancyAvailableDynamicSMemPerBlock) F(cudaOccupancyMaxActiveClusters)                                   \
  F(cudaOccupancyMaxPotentialClusterSize) F(cudaSetValidDevices) F(cudaSignalExternalSemaphoresAsync)              \
  F(cudaStreamAttachMemAsync) F(cudaStreamBeginRecaptureToGraph) F(cudaStreamCopyAttributes)                       \
  F(cudaStreamGetAttribute) F(cudaStreamGetDevResource) F(cudaStreamSetAttribute) F(cudaSubgridCreate)             \
  F(cudaSubgridWorkerGridCreate) F(cudaSubgridWorksetCreate) F(cudaWaitExternalSemaphoresAsync)

#define F(name)          \
  extern "C" int name(); \
  int name() { return memxrt::unsupported(#name); }
FUNCTIONS(F)
