// Every other function of libcublas.so.13. Those that begin with a handle are queued on its stream, the rest counted.
#include "handle.h"

using namespace memxblas;

#define F(name)                                                                  \
  BLAS_API int cublas##name(void* argument) {                                    \
    static Operation operation{"cublas" #name};                                  \
    const Handle* handle = handle_from(argument);                                \
    return handle ? operation.queue(handle->stream) : operation.count();         \
  }

// The forms of a name: with 64-bit sizes, of the second interface, of the first one too.
#define WIDE(name) F(name) F(name##_64)
#define SECOND(name) F(name##_v2) F(name##_v2_64)
#define BOTH(name) F(name) SECOND(name)
#define NARROW(name) F(name) F(name##_v2)

// The types of a name, and its forms.
#define SD(form, name) form(S##name) form(D##name)
#define CZ(form, name) form(C##name) form(Z##name)
#define SDCZ(form, name) SD(form, name) CZ(form, name)

SDCZ(BOTH, axpy) SDCZ(BOTH, copy) SDCZ(BOTH, gbmv) SDCZ(BOTH, gemm) SDCZ(BOTH, gemv) SDCZ(BOTH, rot) SDCZ(BOTH, scal)
SDCZ(BOTH, swap) SDCZ(BOTH, symm) SDCZ(BOTH, syr2k) SDCZ(BOTH, syrk) SDCZ(BOTH, tbmv) SDCZ(BOTH, tbsv) SDCZ(BOTH, tpmv)
SDCZ(BOTH, tpsv) SDCZ(BOTH, trmm) SDCZ(BOTH, trmv) SDCZ(BOTH, trsm) SDCZ(BOTH, trsv) SDCZ(NARROW, rotg)
SDCZ(WIDE, dgmm) SDCZ(WIDE, geam) SDCZ(WIDE, gemmBatched) SDCZ(WIDE, gemmStridedBatched) SDCZ(WIDE, gemvBatched)
SDCZ(WIDE, gemvStridedBatched) SDCZ(WIDE, syrkx) SDCZ(WIDE, trsmBatched)
SDCZ(F, bdmm) SDCZ(F, gelsBatched) SDCZ(F, geqrfBatched) SDCZ(F, getrfBatched) SDCZ(F, getriBatched)
SDCZ(F, getrsBatched) SDCZ(F, matinvBatched) SDCZ(F, tpttr) SDCZ(F, trttp)

SD(BOTH, asum) SD(BOTH, dot) SD(BOTH, ger) SD(BOTH, nrm2) SD(BOTH, rotm) SD(BOTH, sbmv) SD(BOTH, spmv) SD(BOTH, spr)
SD(BOTH, spr2) SD(BOTH, symv) SD(BOTH, syr) SD(BOTH, syr2) SD(NARROW, rotmg) SD(WIDE, gemmGroupedBatched)

CZ(BOTH, dotc) CZ(BOTH, dotu) CZ(BOTH, gerc) CZ(BOTH, geru) CZ(BOTH, hbmv) CZ(BOTH, hemm) CZ(BOTH, hemv) CZ(BOTH, her)
CZ(BOTH, her2) CZ(BOTH, her2k) CZ(BOTH, herk) CZ(BOTH, hpmv) CZ(BOTH, hpr) CZ(BOTH, hpr2) CZ(SECOND, symv)
CZ(SECOND, syr) CZ(SECOND, syr2) CZ(WIDE, gemm3m) CZ(WIDE, herkx)

BOTH(Scasum) BOTH(Scnrm2) BOTH(Dzasum) BOTH(Dznrm2) BOTH(Csrot) BOTH(Csscal) BOTH(Zdrot) BOTH(Zdscal) BOTH(Icamax)
BOTH(Icamin) BOTH(Idamax) BOTH(Idamin) BOTH(Isamax) BOTH(Isamin) BOTH(Izamax) BOTH(Izamin)

WIDE(Hgemm) WIDE(HgemmBatched) WIDE(HgemmStridedBatched) WIDE(HSHgemvBatched) WIDE(HSHgemvStridedBatched)
WIDE(HSSgemvBatched) WIDE(HSSgemvStridedBatched) WIDE(TSSgemvBatched) WIDE(TSSgemvStridedBatched) WIDE(TSTgemvBatched)
WIDE(TSTgemvStridedBatched) WIDE(SgemmEx) WIDE(CgemmEx) WIDE(Cgemm3mBatched) WIDE(Cgemm3mEx)
WIDE(Cgemm3mStridedBatched) WIDE(CherkEx) WIDE(Cherk3mEx) WIDE(CsyrkEx) WIDE(Csyrk3mEx) WIDE(GemmEx)
WIDE(GemmBatchedEx) WIDE(GemmGroupedBatchedEx) WIDE(GemmStridedBatchedEx) WIDE(AsumEx) WIDE(AxpyEx) WIDE(CopyEx)
WIDE(DotEx) WIDE(DotcEx) WIDE(IamaxEx) WIDE(IaminEx) WIDE(Nrm2Ex) WIDE(RotEx) WIDE(RotmEx) WIDE(ScalEx) WIDE(SwapEx)
F(RotgEx) F(RotmgEx) F(Uint8gemmBias)

WIDE(GetMatrix) WIDE(GetMatrixAsync) WIDE(GetVector) WIDE(GetVectorAsync) WIDE(SetMatrix) WIDE(SetMatrixAsync)
WIDE(SetVector) WIDE(SetVectorAsync)

F(Alloc) F(Free) F(Init) F(Shutdown) F(GetError) F(Xerbla) F(SetKernelStream) F(LoggerConfigure) F(GetLoggerCallback)
F(SetLoggerCallback) F(GetBackdoor) F(SetBackdoor) F(SetBackdoorEx) F(GetEnvironmentMode) F(SetEnvironmentMode)
F(GetEmulationSpecialValuesSupport) F(SetEmulationSpecialValuesSupport) F(GetEmulationStrategy)
F(SetEmulationStrategy) F(GetFixedPointEmulationMantissaBitCountPointer)
F(SetFixedPointEmulationMantissaBitCountPointer) F(GetFixedPointEmulationMantissaBitOffset)
F(SetFixedPointEmulationMantissaBitOffset) F(GetFixedPointEmulationMantissaControl)
F(SetFixedPointEmulationMantissaControl) F(GetFixedPointEmulationMaxMantissaBitCount)
F(SetFixedPointEmulationMaxMantissaBitCount)

// Over several devices: counted only.
#define XT(name) F(XtS##name) F(XtD##name) F(XtC##name) F(XtZ##name)
XT(gemm) XT(spmm) XT(symm) XT(syr2k) XT(syrk) XT(syrkx) XT(trmm) XT(trsm)
F(XtChemm) F(XtCher2k) F(XtCherk) F(XtCherkx) F(XtZhemm) F(XtZher2k) F(XtZherk) F(XtZherkx)
F(XtCreate) F(XtDestroy) F(XtDeviceSelect) F(XtGetBlockDim) F(XtGetNumBoards) F(XtGetPinningMemMode) F(XtMaxBoards)
F(XtSetBlockDim) F(XtSetCpuRatio) F(XtSetCpuRoutine) F(XtSetPinningMemMode)
