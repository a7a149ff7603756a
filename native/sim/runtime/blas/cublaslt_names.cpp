// Every other function of libcublasLt.so.13: counted, with success. Most are how libcublas talks to it, which the
// stand-in for libcublas does not.
#include "operation.h"

using namespace memxblas;

#define F(name)                                       \
  BLAS_API int cublasLt##name() {                     \
    static Operation operation{"cublasLt" #name};     \
    return operation.count();                         \
  }

#define TYPES(name)                                                                                             \
  F(name##Matmul) F(name##MatmulAlgoCapGetAttribute) F(name##MatmulAlgoCheck) F(name##MatmulAlgoGetHeuristic)   \
  F(name##MatmulAlgoGetIds) F(name##MatmulAlgoInit)
#define LEGACY(name) F(LegacyGemm##name)
#define INNER(name) F(_for_cublas_##name)

TYPES(ACC) TYPES(BII) TYPES(BSB) TYPES(BSS) TYPES(CCC) TYPES(DDD) TYPES(HHH) TYPES(HSH) TYPES(HSS) TYPES(KCC) TYPES(KCK)
TYPES(SSS) TYPES(TSS) TYPES(TST) TYPES(VCC) TYPES(VCV) TYPES(ZZZ)
LEGACY(ACC) LEGACY(BII) LEGACY(BSS) LEGACY(CCC) LEGACY(DDD) LEGACY(HHH) LEGACY(HSH) LEGACY(HSS) LEGACY(SSS) LEGACY(TSS)
LEGACY(TST) LEGACY(ZZZ)
INNER(BII) INNER(BSS) INNER(DDD) INNER(HHH) INNER(HSH) INNER(HSS) INNER(SSS) INNER(TSS) INNER(TST)

F(AlgoCharacteristicGetAttribute) F(ClearNvjetCache) F(CtxInit) F(ShutdownCtx) F(GetEnvironmentMode)
F(SetEnvironmentMode) F(GetProperty) F(HeuristicLutSerializeEntry) F(HeuristicsCacheCreate) F(HeuristicsCacheDestroy)
F(HeuristicsCacheGet) F(HeuristicsCacheGetCapacity) F(HeuristicsCachePut) F(HeuristicsCacheSetCapacity)
F(LoggerForceDisable) F(LoggerOpenFile) F(LoggerSetCallback) F(LoggerSetFile) F(LoggerSetLevel) F(LoggerSetMask)
F(MatmulAlgoCapGetAttribute) F(MatmulAlgoConfigGetAttribute) F(MatmulAlgoConfigGetAttributeRange)
F(MatmulAlgoConfigSetAttribute)
