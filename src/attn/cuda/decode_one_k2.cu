/* SPDX-License-Identifier: MIT
 *
 * decode_one_k2.cu: kernels of decode attention for lanes of one format with 2-bit keys: k2v8, k2v4, k2v2.  They are
 * measured, and seldom used.  decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_one_k2(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS_1(2, 8, 2, 8), PLEAT__DECODE_ROWS_1(2, 4, 2, 4),
                                                PLEAT__DECODE_ROWS_1(2, 2, 2, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
