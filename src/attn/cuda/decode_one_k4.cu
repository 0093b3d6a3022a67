/* SPDX-License-Identifier: MIT
 *
 * decode_one_k4.cu: kernels of decode attention for lanes of one format with 4-bit keys: k4v8, k4v4, k4v2.
 * decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_one_k4(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS(4, 8, 4, 8), PLEAT__DECODE_ROWS(4, 4, 4, 4),
                                                PLEAT__DECODE_ROWS(4, 2, 4, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
