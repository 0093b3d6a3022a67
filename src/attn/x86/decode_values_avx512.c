/* SPDX-License-Identifier: MIT
 *
 * decode_values_avx512.c: weighted sums of the values of a group of tiles.
 *
 * Elements are dimensions.  A block of 16, 32 or 64 dimensions is summed over the whole group in registers, then
 * folded into o once.  The integer dot product multiplies unsigned by signed: codes are the unsigned side (8-bit ones
 * are stored signed, flipping the top bit makes them unsigned), the weights' limbs the signed one.
 *
 * Tiles are read in columns.  Float tiles, which have 16 rows, are prefetched from start to end all the same, as
 * many lines for each block of dimensions: +5 % for f16 from memory (EPYC 9005, 2026-11; nothing for integers).
 */
#include "attn/x86/decode_avx512.h"

/* Integer values, 16*blocks dimensions from `dim`.  |hi*256 + lo - c*sum| < 64 * 32639 * 255 < 2^31. */
INLINE void values_integer(uint32_t width, uint32_t heads, uint32_t blocks, const pleat__weights_avx512 *w,
                           const pleat__tile_group *g, uint32_t d, uint32_t dim, float *o) {
    const uint32_t planes = 8 / pleat__plane_bits(width), bits = pleat__has_levels(width) ? 8 : width; /* of a code */
    const __m512i levels = load_levels(width), top_bit = _mm512_set1_epi8((char)0x80);
    __m512i hi[HEADS][2], lo[HEADS][2];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < blocks; b++) {
            hi[h][b] = _mm512_setzero_si512();
            lo[h][b] = _mm512_set1_epi32(pleat__minus_middle(bits, w->sum[h]));
        }
    }
    const size_t ahead = (size_t)dim * 4 / planes * 4;
    for (uint32_t r = 0; r < 4 / planes; r++) {
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const size_t at = ((size_t)r * d + dim) * 4;
            line_avx512 line[2];
            for (uint32_t b = 0; b < blocks; b++) {
                line[b] = load_line(width, g->v[t], d, at + 64 * b);
                _mm_prefetch((const char *)g->v_ahead[t] + ahead + 64 * (r * blocks + b), _MM_HINT_T1);
                if (width == 8) line[b].raw = _mm512_xor_si512(line[b].raw, top_bit);
            }
            if (width == 13) _mm_prefetch((const char *)pleat__third_bits(g->v_ahead[t], d, at), _MM_HINT_T1);
            for (uint32_t p = 0; p < planes; p++) {
                __m512i code[2];
                for (uint32_t b = 0; b < blocks; b++) code[b] = code_plane(line[b], width, p, levels);
                for (uint32_t h = 0; h < heads; h++) {
                    const __m512i x = broadcast_four(w->u.limbs.hi[h][t] + 4 * (r * planes + p));
                    const __m512i y = broadcast_four(w->u.limbs.lo[h][t] + 4 * (r * planes + p));
                    for (uint32_t b = 0; b < blocks; b++) {
                        hi[h][b] = dot_four(hi[h][b], code[b], x);
                        lo[h][b] = dot_four(lo[h][b], code[b], y);
                    }
                }
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        const __m512 step = _mm512_set1_ps(w->step[h]), rescale = _mm512_set1_ps(w->rescale[h]);
        for (uint32_t b = 0; b < blocks; b++) {
            float *at = o + (size_t)h * d + dim + 16 * b;
            const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[h][b], 8), lo[h][b]));
            _mm512_store_ps(at, _mm512_fmadd_ps(sum, step, _mm512_mul_ps(_mm512_load_ps(at), rescale)));
        }
    }
}

/* Float values, 16*blocks dimensions from `dim`. */
INLINE void values_float(uint32_t bits, uint32_t heads, uint32_t blocks, const pleat__weights_avx512 *w,
                         const pleat__tile_group *g, uint32_t d, uint32_t dim, float *o) {
    __m512 sum[HEADS][4];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < blocks; b++)
            sum[h][b] = _mm512_mul_ps(_mm512_load_ps(o + (size_t)h * d + dim + 16 * b), _mm512_set1_ps(w->rescale[h]));
    }
    const size_t ahead = (size_t)dim * 2 * bits;
    for (uint32_t s = 0; s < PLEAT__TILE; s++) {
        for (uint32_t t = 0; t < g->n_tiles; t++) {
            const size_t at = ((size_t)s * d + dim) * (bits / 8);
            __m512 x[4];
            for (uint32_t b = 0; b < blocks; b++) {
                const uint8_t *from = g->v[t] + at + (size_t)b * 2 * bits;
                x[b] = bits == 32 ? _mm512_load_ps(from)
                                  : _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)from));
                if (bits == 32 || b % 2 == 0)
                    _mm_prefetch((const char *)g->v_ahead[t] + ahead + ((size_t)s * blocks + b) * 2 * bits,
                                 _MM_HINT_T1);
            }
            for (uint32_t h = 0; h < heads; h++) {
                const __m512 y = _mm512_set1_ps(w->u.f32[h][t][s]);
                for (uint32_t b = 0; b < blocks; b++) sum[h][b] = _mm512_fmadd_ps(y, x[b], sum[h][b]);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t b = 0; b < blocks; b++) _mm512_store_ps(o + (size_t)h * d + dim + 16 * b, sum[h][b]);
    }
}

#define VALUES(bits, heads, kind, most)                                                                         \
    static void values_##bits##x##heads(const pleat__weights_avx512 *w, const pleat__tile_group *g, uint32_t d, \
                                        float *o) {                                                             \
        uint32_t dim = 0;                                                                                       \
        for (; dim + 16 * (most) <= d; dim += 16 * (most)) values_##kind(bits, heads, most, w, g, d, dim, o);   \
        for (; dim < d; dim += 16) values_##kind(bits, heads, 1, w, g, d, dim, o);                              \
    }
#define VALUES_ALL_HEADS(bits, kind, most) \
    VALUES(bits, 1, kind, most) VALUES(bits, 2, kind, most) VALUES(bits, 4, kind, most)

VALUES_ALL_HEADS(2, integer, 2)
VALUES_ALL_HEADS(4, integer, 2)
VALUES_ALL_HEADS(8, integer, 2)
VALUES_ALL_HEADS(12, integer, 2)
VALUES_ALL_HEADS(13, integer, 2)
VALUES_ALL_HEADS(14, integer, 2)
VALUES_ALL_HEADS(16, float, 4)
VALUES_ALL_HEADS(32, float, 4)

#define ROW(bits) \
    { NULL, values_##bits##x1, values_##bits##x2, NULL, values_##bits##x4 }
const pleat__values_avx512_fn pleat__values_avx512[PLEAT__DECODE_ROWS][HEADS + 1] = {
    {NULL}, ROW(2), ROW(4), ROW(8), ROW(16), ROW(32), ROW(12), ROW(13), ROW(14)};
