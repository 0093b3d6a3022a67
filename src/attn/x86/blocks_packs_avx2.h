/* SPDX-License-Identifier: MIT
 *
 * blocks_packs_avx2.h: products with packs (codec/pack.h), whose fields are multiplied where they are taken apart: no code
 * is stored.  For the files that blocks_avx2.h is for.
 *
 *     keys      a pack is 16 tokens of a dimension.  Packs of dimensions 0 and 2 of each four are put side by side, and
 *               1 and 3; sums of numbers times minimums, which all tokens share, are added once a slice
 *     values    a pack is 16 tokens of a dimension too.  A dimension after the other: its packs of all tokens are
 *               multiplied with the numbers of these, and what elements hold is added up at their end
 *
 * Sums are those of blocks_avx2.h, to the bit.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_PACKS_AVX2_H
#define PLEAT_ATTN_X86_BLOCKS_PACKS_AVX2_H

#include "attn/x86/blocks_avx2.h"
#include "codec/x86/pack_avx2.h"

#define PACK PLEAT__PACK_CODES

INLINE __m256i load_numbers(const int16_t *p) { return _mm256_load_si256((const __m256i *)(const void *)p); }

/* Element h: the sum of the elements of v[h]. */
INLINE __m128i whole_sum_of_each(const __m256i *v) {
    const __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    const __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    const __m256i c = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

/* Sums of minimums of d dimensions times the numbers of heads, which stand in the order 0, 2, 1, 3. */
INLINE __m128i dot_minimums(uint32_t heads, const uint8_t *mins, uint32_t d, const int16_t *numbers) {
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    __m256i sum[HEADS];
    UNROLL
    for (uint32_t h = 0; h < HEADS; h++) sum[h] = _mm256_setzero_si256();
    for (size_t i = 0; i < d; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(mins + i));
        const __m256i min = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(bytes, order));
        UNROLL
        for (uint32_t h = 0; h < heads; h++) sum[h] = dot_pairs(sum[h], min, load_numbers(numbers + h * (size_t)d + i));
    }
    return whole_sum_of_each(sum);
}

/* The next pack, and on. */
INLINE __m256i take_pack(const uint8_t *widths, const uint8_t **at) {
    const __m256i x = pack_numbers_at(&pleat__pack_widths[*widths], *at);
    *at += 2 * (size_t)*widths;
    return x;
}

/* Two packs times their pair of numbers of each head.  Elements of sum[h][0] are tokens 0..3 and 8..11, of sum[h][1] the
 * others. */
INLINE void dot_two_packs(uint32_t heads, __m256i x, __m256i y, const int16_t *pair, uint32_t d, __m256i (*sum)[2]) {
    const __m256i a = _mm256_unpacklo_epi16(x, y), b = _mm256_unpackhi_epi16(x, y);
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        const __m256i p = broadcast_pair(pair + h * (size_t)d);
        sum[h][0] = dot_pairs(sum[h][0], a, p);
        sum[h][1] = dot_pairs(sum[h][1], b, p);
    }
}

INLINE void key_packs_of(uint32_t heads, const pleat__pack_slice *slice, uint32_t d, const int16_t *numbers,
                         pleat__blocks_sums_avx2 *sums) {
    int32_t first[HEADS];
    __m256i sum[HEADS][2];
    _mm_storeu_si128((__m128i *)(void *)first, dot_minimums(heads, slice->mins, d, numbers));
    UNROLL
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_set1_epi32(first[h]);
    const uint8_t *at = slice->fields;
    for (size_t i = 0; i < d; i += 4) {
        const uint8_t *widths = slice->widths + i;
        const __m256i x = take_pack(widths, &at), y = take_pack(widths + 1, &at);
        dot_two_packs(heads, x, take_pack(widths + 2, &at), numbers + i, d, sum);
        dot_two_packs(heads, y, take_pack(widths + 3, &at), numbers + i + 2, d, sum);
    }
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        __m256i *out = (__m256i *)(void *)sums->of[h];
        _mm256_store_si256(out, _mm256_permute2x128_si256(sum[h][0], sum[h][1], 0x20));
        _mm256_store_si256(out + 1, _mm256_permute2x128_si256(sum[h][0], sum[h][1], 0x31));
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

/* The packs of 16 tokens: a row of each dimension of a slice. */
typedef struct pack_row {
    const uint8_t *at;
    uint16_t before[ROWS]; /* bytes of the packs before */
    uint16_t width[ROWS];  /* bytes from pleat__pack_widths on */
    uint16_t min[ROWS];
} pack_row;

/* Packs of the slice's 16 dimensions from pack p on, whose fields begin at `at`.  Returns their end. */
INLINE const uint8_t *pack_row_init(pack_row *r, const pleat__pack_slice *slice, uint32_t p, const uint8_t *at) {
    const __m128i widths = _mm_loadu_si128((const __m128i *)(const void *)(slice->widths + p));
    const __m128i mins = _mm_loadu_si128((const __m128i *)(const void *)(slice->mins + p));
    __m128i sum = _mm_add_epi8(widths, widths); /* below 256 for all but the last */
    sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 1));
    sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 2));
    sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 4));
    sum = _mm_add_epi8(sum, _mm_slli_si128(sum, 8));
    const __m256i size = _mm256_set1_epi16((short)sizeof(pleat__pack_width));
    const __m256i before = _mm256_cvtepu8_epi16(_mm_slli_si128(sum, 1));
    r->at = at;
    _mm256_storeu_si256((__m256i *)(void *)r->before, before);
    _mm256_storeu_si256((__m256i *)(void *)r->width, _mm256_mullo_epi16(_mm256_cvtepu8_epi16(widths), size));
    _mm256_storeu_si256((__m256i *)(void *)r->min, _mm256_cvtepu8_epi16(mins));
    return at + r->before[ROWS - 1] + 2 * (size_t)slice->widths[p + ROWS - 1];
}

INLINE __m256i pack_of_row(const pack_row *r, uint32_t dim) {
    const uint8_t *widths = (const uint8_t *)pleat__pack_widths;
    const __m256i x =
        pack_numbers_at((const pleat__pack_width *)(const void *)(widths + r->width[dim]), r->at + r->before[dim]);
    return _mm256_add_epi16(x, _mm256_set1_epi16((short)r->min[dim]));
}

/* Sums of n_rows rows of 16 tokens; numbers of the heads, `stride` apart, in the order of tokens.  Two dimensions at a
 * time share what is read of these. */
INLINE void dot_rows(uint32_t heads, const pack_row *rows, uint32_t n_rows, const int16_t *numbers, size_t stride,
                     pleat__blocks_sums_avx2 *sums) {
    for (uint32_t dim = 0; dim < ROWS; dim += 2) {
        __m256i a[HEADS], b[HEADS];
        UNROLL
        for (uint32_t h = 0; h < HEADS; h++) a[h] = b[h] = _mm256_setzero_si256();
        const int16_t *p = numbers;
        for (const pack_row *r = rows; r < rows + n_rows; r++, p += PACK) {
            const __m256i x = pack_of_row(r, dim), y = pack_of_row(r, dim + 1);
            UNROLL
            for (uint32_t h = 0; h < heads; h++) {
                const __m256i weights = load_numbers(p + h * stride);
                a[h] = dot_pairs(a[h], x, weights);
                b[h] = dot_pairs(b[h], y, weights);
            }
        }
        int32_t total[2][HEADS];
        _mm_storeu_si128((__m128i *)(void *)total[0], whole_sum_of_each(a));
        _mm_storeu_si128((__m128i *)(void *)total[1], whole_sum_of_each(b));
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            sums->of[h][dim] = total[0][h];
            sums->of[h][dim + 1] = total[1][h];
        }
    }
}

/* Sums of a part: of blocks of `tokens` tokens, whose slices are these. */
INLINE void value_packs_of(uint32_t heads, const pleat__pack_slice *slices, uint32_t n_blocks, uint32_t tokens,
                           const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    pack_row rows[PART_TOKENS / PACK];
    uint32_t n_rows = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        const uint8_t *at = slices[b].fields;
        for (uint32_t p = 0; p < tokens; p += PACK) at = pack_row_init(&rows[n_rows++], &slices[b], p, at);
    }
    dot_rows(heads, rows, n_rows, numbers, stride, sums);
}

/* ---- for any number of heads ---------------------------------------------------------------------------------------- */

static void key_packs(uint32_t n_heads, const pleat__pack_slice *slice, uint32_t d, const int16_t *numbers,
                      pleat__blocks_sums_avx2 *sums) {
    PLEAT__FOR_HEADS(n_heads, key_packs_of(heads, slice, d, numbers, sums));
}

static void value_packs(uint32_t n_heads, const pleat__pack_slice *slices, uint32_t n_blocks, uint32_t tokens,
                        const int16_t *numbers, size_t stride, pleat__blocks_sums_avx2 *sums) {
    PLEAT__FOR_HEADS(n_heads, value_packs_of(heads, slices, n_blocks, tokens, numbers, stride, sums));
}

#endif
