/* SPDX-License-Identifier: MIT
 *
 * decode_one_h3.cu: kernels of decode attention for lanes of one rotated format with 3-bit keys: h3v4, h3v3, h3v2.
 * decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_one_h3(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS_ROTATED(3, 4), PLEAT__DECODE_ROWS_ROTATED(3, 3),
                                                PLEAT__DECODE_ROWS_ROTATED(3, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
