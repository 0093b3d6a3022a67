/* SPDX-License-Identifier: MIT
 *
 * decode_mixed.cu: kernels of decode attention for lanes whose two sides are one step apart in both bits.
 * decode_kernel.cuh has the code.
 */
#include "attn/cuda/decode_kernel.cuh"
#include "attn/cuda/decode_table.cuh"

const pleat__decode_kernel *pleat__decode_kernels_mixed(uint32_t *n) {
    static const pleat__decode_kernel rows[] = {PLEAT__DECODE_ROWS(8, 8, 4, 4), PLEAT__DECODE_ROWS(8, 4, 4, 2)};
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
