/* SPDX-License-Identifier: MIT
 *
 * decode_values_avx2.c: weighted sums of the values of a group of tiles.  Elements are dimensions, 16 or 32 at a time,
 * summed over the whole group.  Prefetching is as in decode_values_avx512.c.
 */
#include "attn/x86/decode_integer_avx2.h"

INLINE void values_float(uint32_t bits, uint32_t heads, uint32_t blocks, const pleat__weights_avx2 *w,
                         const pleat__tile_group *g, uint32_t d, uint32_t dim, float *o) {
    __m256 sum[HEADS][4];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++) sum[h][b] = _mm256_setzero_ps();
    }
    const size_t ahead = (size_t)dim * 2 * bits;
    for (uint32_t s = 0; s < PLEAT__TILE; s++) {
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const uint8_t *v = g->v[t] + ((size_t)s * d + dim) * bits / 8;
            __m256 x[4];
            for (uint32_t b = 0; b < 2 * blocks; b++)
                x[b] = bits == 32 ? _mm256_load_ps((const float *)(const void *)v + 8 * b)
                                  : _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)v + b));
            for (uint32_t b = 0; b < blocks; b++) {
                if (bits == 32 || (s * blocks + b) % 2 == 0)
                    _mm_prefetch((const char *)g->v_ahead[t] + ahead + ((size_t)s * blocks + b) * 2 * bits,
                                 _MM_HINT_T1);
            }
            for (uint32_t h = 0; h < heads; h++) {
                const __m256 y = _mm256_broadcast_ss(&w->u.f32[h][t][s]);
                for (uint32_t b = 0; b < 2 * blocks; b++) sum[h][b] = _mm256_fmadd_ps(y, x[b], sum[h][b]);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < 2 * blocks; b++) fold(o + (size_t)h * d + dim + 8 * b, sum[h][b], 1.0f, w->rescale[h]);
    }
}

VALUES_ALL_HEADS(2, integer)
VALUES_ALL_HEADS(4, integer)
VALUES_ALL_HEADS(8, integer)
VALUES_ALL_HEADS(12, integer)
VALUES_ALL_HEADS(13, integer)
VALUES_ALL_HEADS(14, integer)
VALUES_ALL_HEADS(16, float)
VALUES_ALL_HEADS(32, float)

const pleat__values_avx2_fn pleat__values_avx2[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL},          ROW(values, 2),  ROW(values, 4),  ROW(values, 8), ROW(values, 16),
    ROW(values, 32), ROW(values, 12), ROW(values, 13), ROW(values, 14)};
