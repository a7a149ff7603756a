// The names of the runtime's codes, and each thread's last one.
#include <map>

#include "runtime.h"

using namespace memxrt;

namespace {

const std::map<int, const char*>& names() {
  static const auto* table = new std::map<int, const char*>{
#define CODE(name) {name, #name},
      CODE(cudaSuccess) CODE(cudaErrorInvalidValue) CODE(cudaErrorMemoryAllocation) CODE(cudaErrorInitializationError)
      CODE(cudaErrorCudartUnloading) CODE(cudaErrorProfilerDisabled) CODE(cudaErrorInvalidConfiguration)
      CODE(cudaErrorInvalidPitchValue) CODE(cudaErrorInvalidSymbol) CODE(cudaErrorInvalidHostPointer)
      CODE(cudaErrorInvalidDevicePointer) CODE(cudaErrorInvalidMemcpyDirection) CODE(cudaErrorStubLibrary)
      CODE(cudaErrorInsufficientDriver) CODE(cudaErrorCallRequiresNewerDriver) CODE(cudaErrorDevicesUnavailable)
      CODE(cudaErrorIncompatibleDriverContext) CODE(cudaErrorMissingConfiguration)
      CODE(cudaErrorInvalidDeviceFunction) CODE(cudaErrorNoDevice) CODE(cudaErrorInvalidDevice)
      CODE(cudaErrorDeviceNotLicensed) CODE(cudaErrorSoftwareValidityNotEstablished) CODE(cudaErrorStartupFailure)
      CODE(cudaErrorInvalidKernelImage) CODE(cudaErrorDeviceUninitialized) CODE(cudaErrorMapBufferObjectFailed)
      CODE(cudaErrorUnmapBufferObjectFailed) CODE(cudaErrorArrayIsMapped) CODE(cudaErrorAlreadyMapped)
      CODE(cudaErrorNoKernelImageForDevice) CODE(cudaErrorAlreadyAcquired) CODE(cudaErrorNotMapped)
      CODE(cudaErrorNotMappedAsArray) CODE(cudaErrorNotMappedAsPointer) CODE(cudaErrorECCUncorrectable)
      CODE(cudaErrorUnsupportedLimit) CODE(cudaErrorDeviceAlreadyInUse) CODE(cudaErrorPeerAccessUnsupported)
      CODE(cudaErrorInvalidPtx) CODE(cudaErrorInvalidGraphicsContext) CODE(cudaErrorNvlinkUncorrectable)
      CODE(cudaErrorJitCompilerNotFound) CODE(cudaErrorUnsupportedPtxVersion) CODE(cudaErrorJitCompilationDisabled)
      CODE(cudaErrorUnsupportedExecAffinity) CODE(cudaErrorUnsupportedDevSideSync) CODE(cudaErrorContained)
      CODE(cudaErrorInvalidSource) CODE(cudaErrorFileNotFound) CODE(cudaErrorSharedObjectSymbolNotFound)
      CODE(cudaErrorSharedObjectInitFailed) CODE(cudaErrorOperatingSystem) CODE(cudaErrorInvalidResourceHandle)
      CODE(cudaErrorIllegalState) CODE(cudaErrorLossyQuery) CODE(cudaErrorSymbolNotFound) CODE(cudaErrorNotReady)
      CODE(cudaErrorIllegalAddress) CODE(cudaErrorLaunchOutOfResources) CODE(cudaErrorLaunchTimeout)
      CODE(cudaErrorLaunchIncompatibleTexturing) CODE(cudaErrorPeerAccessAlreadyEnabled)
      CODE(cudaErrorPeerAccessNotEnabled) CODE(cudaErrorSetOnActiveProcess) CODE(cudaErrorContextIsDestroyed)
      CODE(cudaErrorAssert) CODE(cudaErrorTooManyPeers) CODE(cudaErrorHostMemoryAlreadyRegistered)
      CODE(cudaErrorHostMemoryNotRegistered) CODE(cudaErrorHardwareStackError) CODE(cudaErrorIllegalInstruction)
      CODE(cudaErrorMisalignedAddress) CODE(cudaErrorInvalidAddressSpace) CODE(cudaErrorInvalidPc)
      CODE(cudaErrorLaunchFailure) CODE(cudaErrorCooperativeLaunchTooLarge) CODE(cudaErrorTensorMemoryLeak)
      CODE(cudaErrorNotPermitted) CODE(cudaErrorNotSupported) CODE(cudaErrorSystemNotReady)
      CODE(cudaErrorSystemDriverMismatch) CODE(cudaErrorCompatNotSupportedOnDevice)
      CODE(cudaErrorMpsConnectionFailed) CODE(cudaErrorMpsRpcFailure) CODE(cudaErrorMpsServerNotReady)
      CODE(cudaErrorMpsMaxClientsReached) CODE(cudaErrorMpsMaxConnectionsReached)
      CODE(cudaErrorMpsClientTerminated) CODE(cudaErrorCdpNotSupported) CODE(cudaErrorCdpVersionMismatch)
      CODE(cudaErrorStreamCaptureUnsupported) CODE(cudaErrorStreamCaptureInvalidated)
      CODE(cudaErrorStreamCaptureMerge) CODE(cudaErrorStreamCaptureUnmatched) CODE(cudaErrorStreamCaptureUnjoined)
      CODE(cudaErrorStreamCaptureIsolation) CODE(cudaErrorStreamCaptureImplicit) CODE(cudaErrorCapturedEvent)
      CODE(cudaErrorStreamCaptureWrongThread) CODE(cudaErrorTimeout) CODE(cudaErrorGraphExecUpdateFailure)
      CODE(cudaErrorExternalDevice) CODE(cudaErrorInvalidClusterSize) CODE(cudaErrorFunctionNotLoaded)
      CODE(cudaErrorInvalidResourceType) CODE(cudaErrorInvalidResourceConfiguration) CODE(cudaErrorUnknown)
#undef CODE
      {227, "cudaErrorInsufficientLoaderVersion"},  // younger than the oldest header
      {917, "cudaErrorStreamDetached"},
      {918, "cudaErrorGraphRecaptureFailure"},
      {919, "cudaErrorFabricNotReady"}};
  return *table;
}

// What the driver has no code for.
const char* words_of_the_runtime(cudaError_t code) {
  switch (code) {
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorMissingConfiguration: return "launch without a configuration";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    default: return nullptr;
  }
}

}  // namespace

extern "C" {

const char* CUDARTAPI cudaGetErrorName(cudaError_t code) {
  const auto found = names().find(code);
  return found == names().end() ? "unrecognized error code" : found->second;
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t code) {
  if (code == cudaSuccess) return "no error";
  if (const char* words = words_of_the_runtime(code)) return words;
  const char* words = nullptr;
  return cuGetErrorString(static_cast<CUresult>(code), &words) ? cudaGetErrorName(code) : words;
}

cudaError_t CUDARTAPI cudaGetLastError(void) {
  const cudaError_t code = cudaPeekAtLastError();
  if (!is_sticky(code)) t_state.last = cudaSuccess;
  return code;
}

// What nothing recovers from stays until the device is reset, by whichever thread.
cudaError_t CUDARTAPI cudaPeekAtLastError(void) {
  if (is_sticky(t_state.last) && t_state.resets != resets()) t_state.last = cudaSuccess;
  return t_state.last;
}

}  // extern "C"
