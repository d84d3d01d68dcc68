// The part of cuBLAS that the engines' host code names. Nothing of it runs on the rig: every call succeeds and does nothing.
#pragma once
#include <cuda_runtime_api.h>
#include <library_types.h>
#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0
enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE,
    CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
    CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED,
};
enum cublasComputeType_t { CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasConstant {
    CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP, CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_TF32_TENSOR_OP_MATH,
    CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_DIAG_NON_UNIT,
};
typedef struct cublasContext * cublasHandle_t;
inline const char * cublasGetStatusString(cublasStatus_t) { return "cuBLAS"; }
#define NOTHING(name) template <typename... T> inline cublasStatus_t name(const T &...) { return CUBLAS_STATUS_SUCCESS; }
NOTHING(cublasCreate)
NOTHING(cublasDestroy)
NOTHING(cublasSetMathMode)
NOTHING(cublasSetStream)
NOTHING(cublasSetWorkspace)
NOTHING(cublasSgemm)
NOTHING(cublasGemmEx)
NOTHING(cublasGemmBatchedEx)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasSgemmBatched)
NOTHING(cublasSgemmStridedBatched)
NOTHING(cublasStrsmBatched)
#undef NOTHING
