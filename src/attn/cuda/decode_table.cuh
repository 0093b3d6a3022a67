/* SPDX-License-Identifier: MIT
 *
 * decode_table.cuh: where decode_f16.cu, decode_one_*.cu and decode_two_*.cu list their kernels: for lanes of one
 * format, and of two.  Several files, so that each compiles in seconds.
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_TABLE_CUH
#define PLEAT_ATTN_CUDA_DECODE_TABLE_CUH

#include "attn/cuda/decode_share.cuh"

extern "C" {
const pleat__decode_kernel *pleat__decode_kernels_f16(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_k8(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_k4(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_two_k8v8(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_two_v4(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_k2(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_two_h(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_h4(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_h3(uint32_t *n);
const pleat__decode_kernel *pleat__decode_kernels_one_h2(uint32_t *n);
}

#endif
