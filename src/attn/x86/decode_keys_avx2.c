/* SPDX-License-Identifier: MIT
 *
 * decode_keys_avx2.c: logits of a group of tiles.  Elements are tokens; a tile is two registers wide.
 */
#include "attn/x86/decode_integer_avx2.h"

INLINE void keys_float(uint32_t bits, uint32_t heads, uint32_t tiles, const pleat__attn_query *query, uint32_t head,
                       const pleat__tile_group *g, uint32_t t0, float (*out)[TILES][PLEAT__TILE]) {
    const size_t d = query->head_dim, row = PLEAT__TILE * (size_t)bits / 8; /* bytes of a dimension */
    const float *q = query->f32 + head * d;
    const uint8_t *k[2] = {g->k[t0], g->k[t0 + tiles - 1]}, *ahead[2] = {g->k_ahead[t0], g->k_ahead[t0 + tiles - 1]};
    __m256 sum[HEADS][2][2];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t t = 0; t < tiles; t++) sum[h][t][0] = sum[h][t][1] = _mm256_setzero_ps();
    }
    for (size_t i = 0; i < d; i++) {
        __m256 x[2][2];
        for (uint32_t t = 0; t < tiles; t++) {
            const uint8_t *from = k[t] + i * row;
            if (bits == 32 || i % 2 == 0) _mm_prefetch((const char *)ahead[t] + i * row, _MM_HINT_T1);
            for (uint32_t half = 0; half < 2; half++)
                x[t][half] = bits == 32 ? _mm256_load_ps((const float *)(const void *)from + 8 * half)
                                        : load_f16(from + 16 * half);
        }
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 y = _mm256_broadcast_ss(q + h * d + i);
            for (uint32_t t = 0; t < tiles; t++) {
                sum[h][t][0] = _mm256_fmadd_ps(y, x[t][0], sum[h][t][0]);
                sum[h][t][1] = _mm256_fmadd_ps(y, x[t][1], sum[h][t][1]);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t t = 0; t < tiles; t++) {
            _mm256_store_ps(out[h][t0 + t], sum[h][t][0]);
            _mm256_store_ps(out[h][t0 + t] + 8, sum[h][t][1]);
        }
    }
}

KEYS_ALL_HEADS(2, integer)
KEYS_ALL_HEADS(4, integer)
KEYS_ALL_HEADS(8, integer)
KEYS_ALL_HEADS(12, integer)
KEYS_ALL_HEADS(13, integer)
KEYS_ALL_HEADS(14, integer)
KEYS_ALL_HEADS(16, float)
KEYS_ALL_HEADS(32, float)

const pleat__keys_avx2_fn pleat__keys_avx2[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL},        ROW(keys, 2),  ROW(keys, 4),  ROW(keys, 8), ROW(keys, 16),
    ROW(keys, 32), ROW(keys, 12), ROW(keys, 13), ROW(keys, 14)};
