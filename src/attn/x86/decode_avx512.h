/* SPDX-License-Identifier: MIT
 *
 * decode_avx512.h: what the parts of AVX-512 decode attention hand to each other.  See decode.h for the scheme.
 *
 *     decode_avx512.c          the walk, the softmax
 *     decode_keys_avx512.c     logits of up to four tiles and four heads, one function for each width of keys
 *     decode_values_avx512.c   weighted sums of values, likewise
 *
 * Functions are made from always-inline templates whose `heads` is a constant, so that accumulators stay in registers.
 */
#ifndef PLEAT_ATTN_X86_DECODE_AVX512_H
#define PLEAT_ATTN_X86_DECODE_AVX512_H

#include "attn/decode.h"
#include "attn/x86/vector_avx512.h"

INLINE __m512 load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p)); }

/* Four limbs in every 32-bit element. */
INLINE __m512i broadcast_four(const int8_t *p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

/* sum += u8 codes * s8 limbs, four products to an element.  Not the intrinsic: gcc 12 copies its accumulator around
 * every use and spills, a third of the kernels' speed. */
INLINE __m512i dot_four(__m512i sum, __m512i codes, __m512i limbs) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(limbs));
    return sum;
}

/* Bytes of four planes of a line, and what makes them codes of a width, or a rotated format's levels plus 128. */
typedef struct line_avx512 {
    __m512i raw, thirds;
} line_avx512;

/* The line at `at` of a tile; tiles of three bits begin at multiples of 32 bytes. */
INLINE line_avx512 load_line(uint32_t width, const uint8_t *tile, uint32_t d, size_t at) {
    line_avx512 l = {width == 13 ? _mm512_loadu_si512(tile + at) : _mm512_load_si512(tile + at),
                     _mm512_setzero_si512()};
    if (width == 13) {
        const __m256i both = _mm256_load_si256((const __m256i *)(const void *)pleat__third_bits(tile, d, at));
        const __m512i by = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
        l.thirds = _mm512_srlv_epi16(_mm512_broadcast_i64x4(both), by);
    }
    return l;
}

/* Levels plus 128 of all codes of a width, for each 16 bytes. */
INLINE __m512i load_levels(uint32_t width) {
    if (!pleat__has_levels(width)) return _mm512_setzero_si512();
    const __m128i level = _mm_loadu_si128((const __m128i *)(const void *)pleat__levels[width - 10]);
    return _mm512_xor_si512(_mm512_broadcast_i32x4(level), _mm512_set1_epi8((char)0x80));
}

INLINE __m512i code_plane(line_avx512 l, uint32_t width, uint32_t p, __m512i levels) {
    const uint32_t bits = pleat__plane_bits(width);
    __m512i code = p == 0 ? l.raw : _mm512_srli_epi16(l.raw, p * bits);
    if (bits < 8) code = _mm512_and_si512(code, _mm512_set1_epi8((char)((1 << bits) - 1)));
    if (width == 13) {
        const __m512i third = p < 2 ? _mm512_slli_epi16(l.thirds, 2 - p) : _mm512_srli_epi16(l.thirds, p - 2);
        code = _mm512_or_si512(code, _mm512_and_si512(third, _mm512_set1_epi8(4)));
    }
    return pleat__has_levels(width) ? _mm512_shuffle_epi8(levels, code) : code;
}

#define TILES PLEAT__DECODE_TILES
#define HEADS PLEAT__DECODE_HEADS

/* logit2 of slot s of tile t for head `head + h` at out[h][t][s], slots that do not count included; out is aligned. */
typedef void (*pleat__keys_avx512_fn)(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *group,
                                      float (*out)[TILES][PLEAT__TILE]);

/* Weights of a block of heads in a group, as the values' width wants them. */
typedef struct pleat__weights_avx512 {
    union {
        float f32[HEADS][TILES][PLEAT__TILE]; /* 2^(logit2 - m'), for values that are floats */
        struct {
            int8_t hi[HEADS][TILES][PLEAT__TILE]; /* 256*hi + lo, in units of step[h] */
            int8_t lo[HEADS][TILES][PLEAT__TILE];
        } limbs;
    } u;
    int32_t sum[HEADS];   /* of 256*hi + lo */
    float step[HEADS];    /* includes 2^(group max - m') */
    float rescale[HEADS]; /* 2^(m - m') for what o holds */
} __attribute__((aligned(64))) pleat__weights_avx512;

/* o [heads][d] = o*rescale + step * sum over slots of weight * (code - c), or weight * value for floats. */
typedef void (*pleat__values_avx512_fn)(const pleat__weights_avx512 *w, const pleat__tile_group *group,
                                        uint32_t head_dim, float *o);

/* By pleat__decode_row() and the heads of a block (1, 2, 4); NULL where there is none. */
extern const pleat__keys_avx512_fn pleat__keys_avx512[PLEAT__DECODE_ROWS][HEADS + 1];
extern const pleat__values_avx512_fn pleat__values_avx512[PLEAT__DECODE_ROWS][HEADS + 1];

#endif
