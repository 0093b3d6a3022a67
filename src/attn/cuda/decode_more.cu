/* SPDX-License-Identifier: MIT
 *
 * decode_more.cu: kernels of decode attention for lanes whose two sides differ otherwise.  decode_kernel.cuh has the
 * code.
 */
#include "attn/cuda/decode_kernel.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_more(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS(8, 8, 8, 4), PLEAT__DECODE_ROWS(8, 8, 4, 2),
                                                PLEAT__DECODE_ROWS(8, 4, 4, 4), PLEAT__DECODE_ROWS(4, 4, 4, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
