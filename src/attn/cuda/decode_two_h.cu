/* SPDX-License-Identifier: MIT
 *
 * decode_two_h.cu: kernels of decode attention for lanes of two formats, the low one rotated: k8v8 or k8v4 high and h3v2
 * or h2v2 low.  decode_kernel.cuh and decode_pieces.cuh have the code.
 */
#include "attn/cuda/decode_rows.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_two_h(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {
        PLEAT__DECODE_ROWS_ROTATED_LOW(8, 8, 3, 2), PLEAT__DECODE_ROWS_ROTATED_LOW(8, 8, 2, 2),
        PLEAT__DECODE_ROWS_ROTATED_LOW(8, 4, 3, 2), PLEAT__DECODE_ROWS_ROTATED_LOW(8, 4, 2, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
