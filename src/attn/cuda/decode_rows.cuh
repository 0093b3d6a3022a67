/* SPDX-License-Identifier: MIT
 *
 * decode_rows.cuh: rows of the tables of kernels of decode attention (decode_table.cuh).
 */
#ifndef PLEAT_ATTN_CUDA_DECODE_ROWS_CUH
#define PLEAT_ATTN_CUDA_DECODE_ROWS_CUH

#include "attn/cuda/decode_pieces.cuh"

#define PLEAT__DECODE_FORMAT(k, v) \
    { bits_of(k), bits_of(v), is_rotated(k) }
/* A row of a table: formats, head_dim, tiles of a step. */
#define PLEAT__DECODE_ROW(d, kh, vh, kl, vl, t)                                                                     \
    {                                                                                                               \
        {PLEAT__DECODE_FORMAT(kh, vh), PLEAT__DECODE_FORMAT(kl, vl)}, d,                                            \
            decode_kernel<decode_config<d, kh, vh, kl, vl, t>>, pieces_kernel<decode_config<d, kh, vh, kl, vl, t>>, \
            decode_config<d, kh, vh, kl, vl, t>::heads, t, decode_config<d, kh, vh, kl, vl, t>::resident,           \
            decode_config<d, kh, vh, kl, vl, t>::max_warps, decode_config<d, kh, vh, kl, vl, t>::warp_bytes         \
    }
/* Both head_dims, one tile a step: for groups of up to 8 heads. */
#define PLEAT__DECODE_ROWS_1(kh, vh, kl, vl) \
    PLEAT__DECODE_ROW(64, kh, vh, kl, vl, 1), PLEAT__DECODE_ROW(128, kh, vh, kl, vl, 1)
/* And before them two, for groups of up to 4: 4- and 8-bit keys only. */
#define PLEAT__DECODE_ROWS(kh, vh, kl, vl)                                               \
    PLEAT__DECODE_ROW(64, kh, vh, kl, vl, 2), PLEAT__DECODE_ROW(128, kh, vh, kl, vl, 2), \
        PLEAT__DECODE_ROWS_1(kh, vh, kl, vl)
/* A rotated format, and one as the low side, for groups of up to 4 alone. */
#define PLEAT__DECODE_ROWS_ROTATED(k, v)                                                                   \
    PLEAT__DECODE_ROW(64, PLEAT__ROTATED(k), PLEAT__ROTATED(v), PLEAT__ROTATED(k), PLEAT__ROTATED(v),      \
                      (v) == 4 ? 2 : 4),                                                                   \
        PLEAT__DECODE_ROW(128, PLEAT__ROTATED(k), PLEAT__ROTATED(v), PLEAT__ROTATED(k), PLEAT__ROTATED(v), \
                          (v) == 4 ? 2 : 4)
#define PLEAT__DECODE_ROWS_ROTATED_LOW(kh, vh, k, v)                        \
    PLEAT__DECODE_ROW(64, kh, vh, PLEAT__ROTATED(k), PLEAT__ROTATED(v), 2), \
        PLEAT__DECODE_ROW(128, kh, vh, PLEAT__ROTATED(k), PLEAT__ROTATED(v), 2)

#endif
