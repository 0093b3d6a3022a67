/* SPDX-License-Identifier: MIT
 *
 * decode_rare.cu: kernels of decode attention for formats that are measured, and seldom used: few bits for values
 * alone, or for keys.  decode_kernel.cuh has the code.
 */
#include "attn/cuda/decode_kernel.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_rare(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS(8, 2, 8, 2), PLEAT__DECODE_ROWS(4, 8, 4, 8),
                                                PLEAT__DECODE_ROWS_1(2, 8, 2, 8), PLEAT__DECODE_ROWS_1(2, 4, 2, 4),
                                                PLEAT__DECODE_ROWS_1(2, 2, 2, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
