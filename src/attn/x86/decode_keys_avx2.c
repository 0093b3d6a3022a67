/* SPDX-License-Identifier: MIT
 *
 * decode_keys_avx2.c: logits of a group of tiles.  Elements are tokens; a tile is two registers wide.
 */
#include "attn/x86/decode_avx2.h"

/* Integer keys.  The sums fit: pleat__attn_query_init() sees to it. */
INLINE void keys_integer(uint32_t bits, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim, line = 4 * (8 / bits); /* dimensions of 64 bytes */
    const int16_t *q = query->both + (size_t)head * d;
    const uint8_t *k = g->k[t], *ahead = g->k_ahead[t];
    __m256i sum[HEADS][2];
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_setzero_si256();
    for (uint32_t i = 0; i < d; i += line, k += 64, ahead += 64) {
        const __m256i *at = (const __m256i *)(const void *)k;
        const __m256i raw[2] = {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
        _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        for (uint32_t p = 0; p < 16 / bits; p++) {
            const __m256i code[2] = {code_plane(raw[0], bits, p), code_plane(raw[1], bits, p)};
            for (uint32_t h = 0; h < heads; h++) {
                const __m256i x = broadcast_pair(q + (size_t)h * d + i + pair_of_plane(bits, p));
                sum[h][0] = add_pairs(sum[h][0], code[0], x);
                sum[h][1] = add_pairs(sum[h][1], code[1], x);
            }
        }
    }
    for (uint32_t half = 0; half < 2; half++) {
        const __m256 scale = load_f16(g->k_meta[t] + 8 * half), min = load_f16(g->k_meta[t] + PLEAT__TILE + 8 * half);
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[h][half]), _mm256_set1_ps(query->step[head + h]));
            const __m256 y = _mm256_mul_ps(min, _mm256_set1_ps(query->sum[head + h]));
            _mm256_store_ps(out[h][t] + 8 * half, _mm256_fmadd_ps(x, scale, y));
        }
    }
}

INLINE void keys_float(uint32_t bits, uint32_t heads, const pleat__attn_query *query, uint32_t head,
                       const pleat__tile_group *g, uint32_t t, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim;
    const float *q = query->f32 + (size_t)head * d;
    const size_t row = PLEAT__TILE * (size_t)bits / 8; /* bytes of a dimension */
    const uint8_t *k = g->k[t], *ahead = g->k_ahead[t];
    __m256 sum[HEADS][2];
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < d; i++, k += row, ahead += row) {
        if (bits == 32 || i % 2 == 0) _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        __m256 x[2];
        for (uint32_t half = 0; half < 2; half++)
            x[half] = bits == 32 ? _mm256_load_ps((const float *)(const void *)k + 8 * half) : load_f16(k + 16 * half);
        for (uint32_t h = 0; h < heads; h++) {
            const __m256 y = _mm256_set1_ps(q[(size_t)h * d + i]);
            sum[h][0] = _mm256_fmadd_ps(y, x[0], sum[h][0]);
            sum[h][1] = _mm256_fmadd_ps(y, x[1], sum[h][1]);
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        _mm256_store_ps(out[h][t], sum[h][0]);
        _mm256_store_ps(out[h][t] + 8, sum[h][1]);
    }
}

#define KEYS(bits, heads, kind)                                                                                  \
    static void keys_##bits##x##heads(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *g, \
                                      float(*out)[TILES][PLEAT__TILE]) {                                         \
        for (uint32_t t = 0; t < g->n_tiles; t++) keys_##kind(bits, heads, query, head, g, t, out);              \
    }
#define KEYS_ALL_HEADS(bits, kind) KEYS(bits, 1, kind) KEYS(bits, 2, kind) KEYS(bits, 4, kind)

KEYS_ALL_HEADS(2, integer)
KEYS_ALL_HEADS(4, integer)
KEYS_ALL_HEADS(8, integer)
KEYS_ALL_HEADS(16, float)
KEYS_ALL_HEADS(32, float)

#define ROW(bits) \
    { NULL, keys_##bits##x1, keys_##bits##x2, NULL, keys_##bits##x4 }
const pleat__keys_avx2_fn pleat__keys_avx2[6][HEADS + 1] = {{NULL}, ROW(2), ROW(4), ROW(8), ROW(16), ROW(32)};
