/* SPDX-License-Identifier: MIT
 *
 * decode_two_k8v8.cu: kernels of decode attention for lanes of two formats: k8v8 high and k8v4, k4v4 or k4v2 low.
 * decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_two_k8v8(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS(8, 8, 8, 4), PLEAT__DECODE_ROWS(8, 8, 4, 4),
                                                PLEAT__DECODE_ROWS(8, 8, 4, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
