/* SPDX-License-Identifier: MIT
 *
 * decode_one_h4.cu: kernels of decode attention for lanes of one rotated format with 4-bit keys: h4v4, h4v3, h4v2.
 * decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_one_h4(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS_ROTATED(4, 4), PLEAT__DECODE_ROWS_ROTATED(4, 3),
                                                PLEAT__DECODE_ROWS_ROTATED(4, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
