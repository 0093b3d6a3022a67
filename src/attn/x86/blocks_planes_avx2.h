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

/* The same for each four rows: of columns `first` and first + 1 of even rows, then of odd ones. */
INLINE __m256i each_row(uint32_t even_first, uint32_t even_second, uint32_t odd_first, uint32_t odd_second) {
    const uint32_t even = even_first | even_second << 16, odd = odd_first | odd_second << 16;
    return _mm256_set1_epi64x((long long)(even | (uint64_t)odd << 32));
}

/* Columns c and c + 1 of the rows whose planes' bytes are here. */
INLINE __m256i plane_codes(__m256i bytes, uint32_t c) {
    const uint32_t bit = 0x0101u << c, factor = 0x1008u >> c; /* in each byte; none of these shifts carries */
    const __m256i mask = each_row(bit, bit << 1, bit << 4, bit << 5);
    const __m256i factors = each_row(factor, factor >> 1, factor, factor >> 1);
    return _mm256_maddubs_epi16(_mm256_and_si256(bytes, mask), factors);
}

/* One vector times its numbers. */
INLINE void dot_planes(uint32_t heads, const uint8_t *planes, const int16_t *numbers, size_t stride, plane_sums sum) {
    const __m256i which = _mm256_setr_epi64x(0x0800080008000800, 0x0901090109010901, 0x0A020A020A020A02,
                                             0x0B030B030B030B03); /* rows 0..7 */
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)planes));
    const __m256i low = _mm256_shuffle_epi8(both, which);
    const __m256i high = _mm256_shuffle_epi8(both, _mm256_add_epi8(which, _mm256_set1_epi8(4)));
    UNROLL
    for (uint32_t c = 0; c < 4; c += 2) {
        const __m256i a = plane_codes(low, c), b = plane_codes(high, c);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const __m256i pair = broadcast_pair(numbers + h * stride + c);
            sum[h][0] = dot_pairs(sum[h][0], a, pair);
            sum[h][1] = dot_pairs(sum[h][1], b, pair);
        }
    }
}

/* Four vectors times their numbers, of which the second's and the third's have changed places. */
INLINE void dot_four_planes(uint32_t heads, const uint8_t *planes, const int16_t *numbers, size_t stride,
                            plane_sums sum) {
    dot_planes(heads, planes, numbers, stride, sum);
    dot_planes(heads, planes + 16, numbers + 8, stride, sum);
    dot_planes(heads, planes + 32, numbers + 4, stride, sum);
    dot_planes(heads, planes + 48, numbers + 12, stride, sum);
}

INLINE __m256i *rows_of(pleat__blocks_sums_avx2 *sums, uint32_t i) {
    return (__m256i *)(void *)(sums->of[i / 2] + (size_t)8 * (i % 2));
}

/* What has come together, or with what `sums` has. */
INLINE void empty_planes(uint32_t heads, plane_sums sum, bool adds, pleat__blocks_sums_avx2 *sums) {
    const __m256i shift = _mm256_set1_epi64x(3 | 7ll << 32);
    UNROLL
    for (uint32_t i = 0; i < 2 * heads; i++) {
        __m256i *out = rows_of(sums, i);
        __m256i x = _mm256_srav_epi32(sum[i / 2][i % 2], shift);
        if (adds) x = _mm256_add_epi32(_mm256_load_si256(out), x);
        _mm256_store_si256(out, x);
        sum[i / 2][i % 2] = _mm256_setzero_si256();
    }
}

/* n columns, a multiple of 16. */
INLINE const int16_t *add_planes(uint32_t heads, const uint8_t *planes, uint32_t n, const int16_t *numbers,
                                 size_t stride, plane_sums sum) {
    for (const uint8_t *end = planes + (size_t)4 * n; planes < end; planes += 64, numbers += 16)
        dot_four_planes(heads, planes, numbers, stride, sum);
    return numbers;
}

/* Sums of blocks of n_columns whose slices' planes are these, PLANE_COLUMNS at most. */
INLINE void few_planes(uint32_t heads, const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns,
                       const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    plane_sums sum;
    UNROLL
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_setzero_si256();
    const uint8_t *at = planes[0], *end = at + (size_t)4 * n_columns;
    for (uint32_t n = n_blocks * n_columns; n > 0; n -= 16, at += 64, numbers += 16) { /* two loops spill sums */
        if (at == end) {
            at = *++planes;
            end = at + (size_t)4 * n_columns;
        }
        dot_four_planes(heads, at, numbers, stride, sum);
    }
    empty_planes(heads, sum, false, sums);
}

/* Of any number of columns. */
INLINE void many_planes(uint32_t heads, const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns,
                        const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    plane_sums sum;
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        sum[h][0] = sum[h][1] = _mm256_setzero_si256();
        _mm256_store_si256(rows_of(sums, 2 * h), sum[h][0]);
        _mm256_store_si256(rows_of(sums, 2 * h + 1), sum[h][1]);
    }
    uint32_t n_held = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        for (uint32_t i = 0, n; i < n_columns; i += n) { /* as many as come together */
            n = pleat__min_u32(n_columns - i, PLANE_COLUMNS - n_held);
            numbers = add_planes(heads, planes[b] + (size_t)4 * i, n, numbers, stride, sum);
            n_held = (n_held + n) % PLANE_COLUMNS;
            if (n_held == 0) empty_planes(heads, sum, true, sums);
        }
    }
    if (n_held > 0) empty_planes(heads, sum, true, sums);
}

static void plane_dots(uint32_t n_heads, const uint8_t *const *planes, uint32_t n_blocks, uint32_t n_columns,
                       const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    if (n_blocks * n_columns <= PLANE_COLUMNS) {
        PLEAT__FOR_HEADS(n_heads, few_planes(heads, planes, n_blocks, n_columns, numbers, stride, sums));
    } else {
        PLEAT__FOR_HEADS(n_heads, many_planes(heads, planes, n_blocks, n_columns, numbers, stride, sums));
    }
}

#endif
