/* SPDX-License-Identifier: MIT
 *
 * decode_values_avx2.c: weighted sums of the values of a group of tiles.  Elements are dimensions, 16 at a time in two
 * registers, summed over the whole group.  Prefetching is as in decode_values_avx512.c.
 */
#include "attn/x86/decode_avx2.h"

/* Add sum*step to o*rescale. */
INLINE void fold(float *o, __m256 sum, float step, float rescale) {
    const __m256 old = _mm256_mul_ps(_mm256_load_ps(o), _mm256_set1_ps(rescale));
    _mm256_store_ps(o, _mm256_fmadd_ps(sum, _mm256_set1_ps(step), old));
}

/* Integer values, 16 dimensions from `dim`.  Sums fit: 64 * 32639 * 255 < 2^31. */
INLINE void values_integer(uint32_t bits, uint32_t heads, const pleat__weights_avx2 *w, const pleat__tile_group *g,
                           uint32_t d, uint32_t dim, float *o) {
    const uint32_t planes = 8 / bits;
    const __m256i top_bit = _mm256_set1_epi8((char)0x80);
    __m256i sum[HEADS][2];
    for (uint32_t h = 0; h < heads; h++)
        sum[h][0] = sum[h][1] = _mm256_set1_epi32(-(1 << (bits - 1)) * w->sum[h]); /* codes around their middle */
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        for (uint32_t r = 0; r < 4 / planes; r++) {
            const size_t from = ((size_t)r * d + dim) * 4;
            const __m256i *at = (const __m256i *)(const void *)(g->v[t] + from);
            __m256i raw[2] = {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
            _mm_prefetch((const char *)g->v_ahead[t] + from, _MM_HINT_T0);
            if (bits == 8) {
                raw[0] = _mm256_xor_si256(raw[0], top_bit);
                raw[1] = _mm256_xor_si256(raw[1], top_bit);
            }
            for (uint32_t p = 0; p < 2 * planes; p++) {
                const __m256i code[2] = {code_plane(raw[0], bits, p), code_plane(raw[1], bits, p)};
                for (uint32_t h = 0; h < heads; h++) {
                    const __m256i x = broadcast_pair(w->u.fixed[h][t] + 4 * r * planes + pair_of_plane(bits, p));
                    sum[h][0] = add_pairs(sum[h][0], code[0], x);
                    sum[h][1] = add_pairs(sum[h][1], code[1], x);
                }
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        fold(o + (size_t)h * d + dim, _mm256_cvtepi32_ps(sum[h][0]), w->step[h], w->rescale[h]);
        fold(o + (size_t)h * d + dim + 8, _mm256_cvtepi32_ps(sum[h][1]), w->step[h], w->rescale[h]);
    }
}

INLINE void values_float(uint32_t bits, uint32_t heads, const pleat__weights_avx2 *w, const pleat__tile_group *g,
                         uint32_t d, uint32_t dim, float *o) {
    __m256 sum[HEADS][2];
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_setzero_ps();
    for (uint32_t t = 0; t < g->n_tiles; t++) {
        const size_t row = (size_t)d * bits / 8;
        const uint8_t *v = g->v[t] + (size_t)dim * bits / 8, *ahead = g->v_ahead[t] + (size_t)dim * 2 * bits;
        for (uint32_t s = 0; s < PLEAT__TILE; s++, v += row, ahead += 2 * bits) {
            __m256 x[2];
            for (uint32_t half = 0; half < 2; half++)
                x[half] = bits == 32 ? _mm256_load_ps((const float *)(const void *)v + 8 * half)
                                     : _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)v + half));
            if (bits == 32 || s % 2 == 0) _mm_prefetch((const char *)ahead, _MM_HINT_T0);
            for (uint32_t h = 0; h < heads; h++) {
                const __m256 y = _mm256_set1_ps(w->u.f32[h][t][s]);
                sum[h][0] = _mm256_fmadd_ps(y, x[0], sum[h][0]);
                sum[h][1] = _mm256_fmadd_ps(y, x[1], sum[h][1]);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        fold(o + (size_t)h * d + dim, sum[h][0], 1.0f, w->rescale[h]);
        fold(o + (size_t)h * d + dim + 8, sum[h][1], 1.0f, w->rescale[h]);
    }
}

#define VALUES(bits, heads, kind)                                                                             \
    static void values_##bits##x##heads(const pleat__weights_avx2 *w, const pleat__tile_group *g, uint32_t d, \
                                        float *o) {                                                           \
        for (uint32_t dim = 0; dim < d; dim += 16) values_##kind(bits, heads, w, g, d, dim, o);               \
    }
#define VALUES_ALL_HEADS(bits, kind) VALUES(bits, 1, kind) VALUES(bits, 2, kind) VALUES(bits, 4, kind)

VALUES_ALL_HEADS(2, integer)
VALUES_ALL_HEADS(4, integer)
VALUES_ALL_HEADS(8, integer)
VALUES_ALL_HEADS(16, float)
VALUES_ALL_HEADS(32, float)

#define ROW(bits) \
    { NULL, values_##bits##x1, values_##bits##x2, NULL, values_##bits##x4 }
const pleat__values_avx2_fn pleat__values_avx2[6][HEADS + 1] = {{NULL}, ROW(2), ROW(4), ROW(8), ROW(16), ROW(32)};
