/* SPDX-License-Identifier: MIT
 *
 * boxes.cuh: how matrices in the GPU's memory are described to Hopper's copies (bulk.cuh), on the host.
 */
#ifndef PLEAT_HW_CUDA_BOXES_CUH
#define PLEAT_HW_CUDA_BOXES_CUH

#include <cudaTypedefs.h>

#include "hw/cuda/cuda.cuh"

/* A matrix, or several one behind the other, and the box that is copied at a time.  Rows are row_bytes apart. */
typedef struct pleat__boxes_of {
    const void *data;
    bool is_f16; /* else bytes */
    uint64_t cols, rows, row_bytes;
    uint32_t box_cols, box_rows;
    uint64_t n_matrices, matrix_bytes; /* 0: one */
    uint32_t box_matrices;
    CUtensorMapSwizzle swizzle;
} pleat__boxes_of;

/* What of a box is behind the matrix's last column or row is zeros. */
static inline pleat_status pleat__describe_boxes(const pleat__boxes_of &b, CUtensorMap *map, pleat_error *err) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = NULL;
    const cuuint64_t sizes[3] = {b.cols, b.rows, b.n_matrices}, strides[2] = {b.row_bytes, b.matrix_bytes};
    const cuuint32_t box[3] = {b.box_cols, b.box_rows, b.box_matrices}, steps[3] = {1, 1, 1};
    cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    if (!encode) {
        PLEAT_CUDA_TRY(
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
            "asking the driver for boxes", err);
        encode = (PFN_cuTensorMapEncodeTiled_v12000)function;
    }
    const CUresult code =
        encode(map, b.is_f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, b.n_matrices ? 3 : 2,
               (void *)(uintptr_t)b.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, b.swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return pleat__cuda_status(code == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown, "describing a matrix", err);
}

#endif
