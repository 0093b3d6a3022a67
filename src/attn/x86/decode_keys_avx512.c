/* SPDX-License-Identifier: MIT
 *
 * decode_keys_avx512.c: logits of a group of tiles.
 *
 * Elements are tokens, so nothing is summed across a register.  Two tiles at a time: each query value is broadcast once
 * for both, and there are enough independent sums to hide the latency of a multiply-add.
 */
#include "attn/x86/decode_avx512.h"

/* Integer keys.  The sums fit: pleat__attn_query_init() sees to it. */
INLINE void keys_integer(uint32_t width, uint32_t heads, uint32_t tiles, const pleat__attn_query *query, uint32_t head,
                         const pleat__tile_group *g, uint32_t t0, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim, planes = 8 / pleat__plane_bits(width);
    const int8_t *qhi = query->hi + (size_t)head * d, *qlo = query->lo + (size_t)head * d;
    const __m512i levels = load_levels(width);
    const uint8_t *k[2] = {g->k[t0], g->k[t0 + tiles - 1]}, *ahead[2] = {g->k_ahead[t0], g->k_ahead[t0 + tiles - 1]};
    __m512i hi[HEADS][2], lo[HEADS][2];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t t = 0; t < tiles; t++) hi[h][t] = lo[h][t] = _mm512_setzero_si512();
    }
    for (uint32_t i = 0; i < d; i += 4 * planes) {
        line_avx512 line[2];
        for (uint32_t t = 0; t < tiles; t++) {
            const size_t at = (size_t)i / planes * PLEAT__TILE;
            line[t] = load_line(width, k[t], d, at);
            _mm_prefetch((const char *)ahead[t] + at, _MM_HINT_T1);
            if (width == 13) _mm_prefetch((const char *)pleat__third_bits(ahead[t], d, at), _MM_HINT_T1);
        }
        for (uint32_t p = 0; p < planes; p++) {
            __m512i code[2];
            for (uint32_t t = 0; t < tiles; t++) code[t] = code_plane(line[t], width, p, levels);
            for (uint32_t h = 0; h < heads; h++) {
                const __m512i a = broadcast_four(qhi + (size_t)h * d + i + 4 * p);
                const __m512i b = broadcast_four(qlo + (size_t)h * d + i + 4 * p);
                for (uint32_t t = 0; t < tiles; t++) {
                    hi[h][t] = dot_four(hi[h][t], code[t], a);
                    lo[h][t] = dot_four(lo[h][t], code[t], b);
                }
            }
        }
    }
    for (uint32_t t = 0; t < tiles; t++) {
        const __m512 scale = load_f16(g->k_meta[t0 + t]);
        const __m512 min = pleat__has_levels(width) ? _mm512_mul_ps(scale, _mm512_set1_ps(-128))
                                                    : load_f16(g->k_meta[t0 + t] + PLEAT__TILE);
        for (uint32_t h = 0; h < heads; h++) {
            const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[h][t], 8), lo[h][t]));
            const __m512 x = _mm512_mul_ps(dot, _mm512_set1_ps(query->step[head + h]));
            const __m512 y = _mm512_mul_ps(min, _mm512_set1_ps(query->sum[head + h]));
            _mm512_store_ps(out[h][t0 + t], _mm512_fmadd_ps(x, scale, y));
        }
    }
}

/* Floats.  Fewer than eight sums would wait for each other: they are split into even and odd dimensions. */
INLINE void keys_float(uint32_t bits, uint32_t heads, uint32_t tiles, const pleat__attn_query *query, uint32_t head,
                       const pleat__tile_group *g, uint32_t t0, float (*out)[TILES][PLEAT__TILE]) {
    const uint32_t d = query->head_dim;
    const float *q = query->f32 + (size_t)head * d;
    const size_t row = PLEAT__TILE * (size_t)bits / 8; /* bytes of a dimension */
    const uint8_t *k[2] = {g->k[t0], g->k[t0 + tiles - 1]}, *ahead[2] = {g->k_ahead[t0], g->k_ahead[t0 + tiles - 1]};
    const uint32_t splits = heads * tiles < 8 ? 2 : 1;
    __m512 sum[HEADS][2][2];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t t = 0; t < tiles; t++) sum[h][t][0] = sum[h][t][1] = _mm512_setzero_ps();
    }
    for (uint32_t i = 0; i < d; i += 2) {
        for (uint32_t t = 0; t < tiles; t++) {
            _mm_prefetch((const char *)ahead[t] + i * row, _MM_HINT_T1);
            if (bits == 32) _mm_prefetch((const char *)ahead[t] + (i + 1) * row, _MM_HINT_T1);
        }
        for (uint32_t j = 0; j < 2; j++) {
            __m512 x[2];
            for (uint32_t t = 0; t < tiles; t++)
                x[t] = bits == 32 ? _mm512_load_ps(k[t] + (i + j) * row) : load_f16(k[t] + (i + j) * row);
            for (uint32_t h = 0; h < heads; h++) {
                const __m512 y = _mm512_set1_ps(q[(size_t)h * d + i + j]);
                for (uint32_t t = 0; t < tiles; t++)
                    sum[h][t][j % splits] = _mm512_fmadd_ps(y, x[t], sum[h][t][j % splits]);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t t = 0; t < tiles; t++)
            _mm512_store_ps(out[h][t0 + t], splits == 2 ? _mm512_add_ps(sum[h][t][0], sum[h][t][1]) : sum[h][t][0]);
    }
}

#define KEYS(bits, heads, kind)                                                                                  \
    static void keys_##bits##x##heads(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *g, \
                                      float(*out)[TILES][PLEAT__TILE]) {                                         \
        uint32_t t = 0;                                                                                          \
        for (; t + 2 <= g->n_tiles; t += 2) keys_##kind(bits, heads, 2, query, head, g, t, out);                 \
        if (t < g->n_tiles) keys_##kind(bits, heads, 1, query, head, g, t, out);                                 \
    }
#define KEYS_ALL_HEADS(bits, kind) KEYS(bits, 1, kind) KEYS(bits, 2, kind) KEYS(bits, 4, kind)

KEYS_ALL_HEADS(2, integer)
KEYS_ALL_HEADS(4, integer)
KEYS_ALL_HEADS(8, integer)
KEYS_ALL_HEADS(12, integer)
KEYS_ALL_HEADS(13, integer)
KEYS_ALL_HEADS(14, integer)
KEYS_ALL_HEADS(16, float)
KEYS_ALL_HEADS(32, float)

#define ROW(bits) \
    { NULL, keys_##bits##x1, keys_##bits##x2, NULL, keys_##bits##x4 }
const pleat__keys_avx512_fn pleat__keys_avx512[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL}, ROW(2), ROW(4), ROW(8), ROW(16), ROW(32), ROW(12), ROW(13), ROW(14)};
