// The unsuffixed names of functions whose current form has a suffix. The real driver keeps interfaces with 32-bit
// sizes there, which nobody can be using on 64-bit systems; here they are the current ones.
#if defined(__x86_64__)
#define JUMP "jmp "
#define THROUGH "@PLT"
#else
#define JUMP "b "
#define THROUGH ""
#endif

#define OLD_NAME(name, current)                                                                        \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": " JUMP #current THROUGH "\n.size " #name \
      ", .-" #name "\n");

OLD_NAME(cuMemAlloc, cuMemAlloc_v2)
OLD_NAME(cuMemAllocPitch, cuMemAllocPitch_v2)
OLD_NAME(cuMemFree, cuMemFree_v2)
OLD_NAME(cuMemGetInfo, cuMemGetInfo_v2)
OLD_NAME(cuMemGetAddressRange, cuMemGetAddressRange_v2)
OLD_NAME(cuMemAllocHost, cuMemAllocHost_v2)
OLD_NAME(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)
OLD_NAME(cuMemHostRegister, cuMemHostRegister_v2)
OLD_NAME(cuDeviceTotalMem, cuDeviceTotalMem_v2)
OLD_NAME(cuMemcpyHtoD, cuMemcpyHtoD_v2)
OLD_NAME(cuMemcpyDtoH, cuMemcpyDtoH_v2)
OLD_NAME(cuMemcpyDtoD, cuMemcpyDtoD_v2)
OLD_NAME(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)
OLD_NAME(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)
OLD_NAME(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)
OLD_NAME(cuMemcpy2D, cuMemcpy2D_v2)
OLD_NAME(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2)
OLD_NAME(cuMemcpy2DAsync, cuMemcpy2DAsync_v2)
OLD_NAME(cuMemsetD8, cuMemsetD8_v2)
OLD_NAME(cuMemsetD16, cuMemsetD16_v2)
OLD_NAME(cuMemsetD32, cuMemsetD32_v2)
OLD_NAME(cuMemsetD2D8, cuMemsetD2D8_v2)
OLD_NAME(cuMemsetD2D16, cuMemsetD2D16_v2)
OLD_NAME(cuMemsetD2D32, cuMemsetD2D32_v2)
OLD_NAME(cuCtxCreate, cuCtxCreate_v2)
OLD_NAME(cuCtxDestroy, cuCtxDestroy_v2)
OLD_NAME(cuCtxPopCurrent, cuCtxPopCurrent_v2)
OLD_NAME(cuCtxPushCurrent, cuCtxPushCurrent_v2)
OLD_NAME(cuStreamDestroy, cuStreamDestroy_v2)
OLD_NAME(cuEventDestroy, cuEventDestroy_v2)
OLD_NAME(cuEventElapsedTime, cuEventElapsedTime_v2)
OLD_NAME(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)
OLD_NAME(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)
OLD_NAME(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)
OLD_NAME(cuStreamWriteValue32, cuStreamWriteValue32_v2)
OLD_NAME(cuDeviceGetUuid, cuDeviceGetUuid_v2)
OLD_NAME(cuStreamBeginCapture, cuStreamBeginCapture_v2)
OLD_NAME(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v1)
OLD_NAME(cuGetProcAddress, cuGetProcAddress_v1)
OLD_NAME(cuGraphInstantiate, cuGraphInstantiate_v2)
