/* SPDX-License-Identifier: MIT
 *
 * blocks_planes_avx2.h: products with codes of two bits where their planes stand: no code is stored.  For the files that
 * blocks_avx2.h is for.
 *
 * A vector is 16 rows of 4 columns, its planes 8 bytes each: bit 4*row + column.  A shuffle brings both planes' bytes of
 * a row to each of its 16-bit elements.  A mask leaves the column's two bits where they are, and a multiplication by
 * bytes adds them up, as 1 and 2 times a power of two.  That is the column's own, so that all codes of a row are shifted
 * up by the same, 3 or 7.  Sums are shifted down at their end: they are those of codes, to the bit.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_PLANES_AVX2_H
#define PLEAT_ATTN_X86_BLOCKS_PLANES_AVX2_H

#include "attn/x86/blocks_avx2.h"

/* Columns whose sums fit an element while they are shifted up: 128 * 32639 * (3 << 7) is below 2^31. */
#define PLANE_COLUMNS 128u

/* Sums so far of a slice's rows, 0..7 and 8..15. */
typedef __m256i plane_sums[HEADS][2];

/* The same for each four rows: of columns `first` and first + 2 of even rows, then of odd ones. */
INLINE __m256i each_row(uint32_t even_first, uint32_t even_second, uint32_t odd_first, uint32_t odd_second) {
    const uint32_t even = even_first | even_second << 16, odd = odd_first | odd_second << 16;
    return _mm256_set1_epi64x((long long)(even | (uint64_t)odd << 32));
}

/* Columns c and c + 2 of the rows whose planes' bytes are here. */
INLINE __m256i plane_codes(__m256i bytes, uint32_t c) {
    const uint32_t bit = 0x0101u << c, factor = 0x1008u >> c; /* in each byte; none of these shifts carries */
    const __m256i mask = each_row(bit, bit << 2, bit << 4, bit << 6);
    const __m256i factors = each_row(factor, factor >> 2, factor, factor >> 2);
    return _mm256_maddubs_epi16(_mm256_and_si256(bytes, mask), factors);
}

/* One vector times numbers in the order 0, 2, 1, 3 of columns. */
INLINE void dot_planes(uint32_t heads, const uint8_t *planes, const int16_t *numbers, size_t stride, plane_sums sum) {
    const __m256i which = _mm256_setr_epi64x(0x0800080008000800, 0x0901090109010901, 0x0A020A020A020A02,
                                             0x0B030B030B030B03); /* rows 0..7 */
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)planes));
    const __m256i low = _mm256_shuffle_epi8(both, which);
    const __m256i high = _mm256_shuffle_epi8(both, _mm256_add_epi8(which, _mm256_set1_epi8(4)));
    UNROLL
    for (uint32_t c = 0; c < 2; c++) {
        const __m256i a = plane_codes(low, c), b = plane_codes(high, c);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m256i pair = broadcast_pair(numbers + h * stride + 2 * (size_t)c);
            sum[h][0] = dot_pairs(sum[h][0], a, pair);
            sum[h][1] = dot_pairs(sum[h][1], b, pair);
        }
    }
}

/* Add to sums what has come together, and begin anew. */
INLINE void empty_planes(uint32_t heads, plane_sums sum, pleat__blocks_sums_avx2 *sums) {
    const __m256i shift = _mm256_set1_epi64x(3 | 7ll << 32);
    UNROLL
    for (uint32_t i = 0; i < 2 * heads; i++) {
        __m256i *out = (__m256i *)(void *)(sums->of[i / 2] + (size_t)8 * (i % 2));
        _mm256_store_si256(out, _mm256_add_epi32(_mm256_load_si256(out), _mm256_srav_epi32(sum[i / 2][i % 2], shift)));
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    }
}

/* Sums of blocks of n_columns whose slices' planes are these. */
INLINE void plane_dots_of(uint32_t heads, const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns,
                          const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    plane_sums sum;
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        sum[h][0] = sum[h][1] = _mm256_setzero_si256();
        _mm256_store_si256((__m256i *)(void *)sums->of[h], sum[h][0]);
        _mm256_store_si256((__m256i *)(void *)(sums->of[h] + 8), sum[h][1]);
    }
    uint32_t n_held = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        const uint8_t *at = planes[b];
        for (uint32_t i = 0, n; i < n_columns; i += n) { /* as many as come together */
            n = pleat__min_u32(n_columns - i, PLANE_COLUMNS - n_held);
            for (const uint8_t *end = at + (size_t)4 * n; at < end; at += 16, numbers += 4)
                dot_planes(heads, at, numbers, stride, sum);
            n_held = (n_held + n) % PLANE_COLUMNS;
            if (n_held == 0) empty_planes(heads, sum, sums);
        }
    }
    if (n_held > 0) empty_planes(heads, sum, sums);
}

static void plane_dots(uint32_t n_heads, const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns,
                       const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    PLEAT__FOR_HEADS(n_heads, plane_dots_of(heads, planes, n_blocks, n_columns, numbers, stride, sums));
}

#endif
