/* SPDX-License-Identifier: MIT
 *
 * decode_table.cuh: where decode_*.cu list their kernels.  Several files, so that each compiles in seconds.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_TABLE_CUH
#define PLEAT_ATTN_CUDA_DECODE_TABLE_CUH

#include "attn/cuda/decode_share.cuh"

extern "C" {
const pleat__decode_kernel *pleat__decode_kernels_f16(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_k8(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_k4(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_mixed(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_more(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_rare(uint32_t *n);
}

#endif
