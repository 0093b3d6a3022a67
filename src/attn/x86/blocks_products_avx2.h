/* SPDX-License-Identifier: MIT
 *
 * blocks_products_avx2.h: logits and values of a slice, from codes, packs or planes.  For the files that blocks_avx2.h is
 * for.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_PRODUCTS_AVX2_H
#define PLEAT_ATTN_X86_BLOCKS_PRODUCTS_AVX2_H

#include "attn/x86/blocks_packs_avx2.h"
#include "attn/x86/blocks_planes_avx2.h"

/* sums = codes of n_columns columns times the numbers of `heads` heads, `stride` apart. */
INLINE void dots_of(uint32_t heads, const uint8_t *codes, uint32_t n_columns, const int16_t *numbers, size_t stride,
                    pleat__blocks_sums_avx2 *sums) {
    const __m256i low = _mm256_set1_epi16(0xFF);
    __m256i sum[HEADS][2];
    UNROLL
    for (uint32_t h = 0; h < heads; h++) sum[h][0] = sum[h][1] = _mm256_setzero_si256();
    for (size_t i = 0; i < n_columns; i += 4, codes += VECTOR) {
        const __m256i a = _mm256_load_si256((const __m256i *)(const void *)codes);
        const __m256i b = _mm256_load_si256((const __m256i *)(const void *)(codes + 32));
        const __m256i a02 = _mm256_and_si256(a, low), a13 = _mm256_srli_epi16(a, 8);
        const __m256i b02 = _mm256_and_si256(b, low), b13 = _mm256_srli_epi16(b, 8);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const int16_t *p = numbers + h * stride + i;
            const __m256i p02 = broadcast_pair(p), p13 = broadcast_pair(p + 2);
            sum[h][0] = dot_pairs(dot_pairs(sum[h][0], a02, p02), a13, p13);
            sum[h][1] = dot_pairs(dot_pairs(sum[h][1], b02, p02), b13, p13);
        }
    }
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        _mm256_store_si256((__m256i *)(void *)sums->of[h], sum[h][0]);
        _mm256_store_si256((__m256i *)(void *)(sums->of[h] + 8), sum[h][1]);
    }
}

INLINE void dots(uint32_t n_heads, const uint8_t *codes, uint32_t n_columns, const int16_t *numbers, size_t stride,
                 pleat__blocks_sums_avx2 *sums) {
    PLEAT__FOR_HEADS(n_heads, dots_of(heads, codes, n_columns, numbers, stride, sums));
}

INLINE __m256 sum_of_head(const pleat__blocks_sums_avx2 *sums, uint32_t h, uint32_t row) {
    return _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)(sums->of[h] + row)));
}

/* Logits of n_heads heads and a slice of a block's tokens, row floats apart, from its sums. */
INLINE void write_logits(uint32_t n_heads, const pleat__blocks_sums_avx2 *sums, const float *scales,
                         const float *biases, size_t row, float *out) {
    UNROLL
    for (uint32_t h = 0; h < n_heads; h++, out += row) {
        const __m256 scale = _mm256_set1_ps(scales[h]), bias = _mm256_set1_ps(biases[h]);
        UNROLL
        for (uint32_t i = 0; i < ROWS; i += 8)
            _mm256_store_ps(out + i, _mm256_fmadd_ps(sum_of_head(sums, h, i), scale, bias));
    }
}

/* Logits of a slice of the tokens of each block. */
INLINE void keys_of(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t d = w->format->head_dim, row = pleat__blocks_row(w->format);
    for (uint32_t b = 0; b < w->n_blocks; b++) {
        for (uint32_t head = 0; head < w->query->n_group; head += HEADS) {
            const uint32_t n_heads = pleat__min_u32(w->query->n_group - head, HEADS), at = b * w->heads + head;
            float *out = w->weights + (size_t)head * row + (size_t)b * w->format->tokens + (size_t)slice * ROWS;
            pleat__blocks_sums_avx2 sums;
            const int16_t *numbers = pleat__key_numbers(w, b, head);
            if (w->packs)
                key_packs(n_heads, &w->packs[b], d, numbers, &sums);
            else if (w->planes)
                plane_dots(n_heads, &w->planes[b], 1, d, numbers, d, &sums);
            else
                dots(n_heads, w->codes + (size_t)b * d * ROWS, d, numbers, d, &sums);
            PLEAT__FOR_HEADS(n_heads, write_logits(heads, &sums, w->key_scale + at, w->key_bias + at, row, out));
        }
    }
}

/* Sums of a slice's values from token `from` on, PART_TOKENS at most. */
INLINE void value_part(const pleat__blocks_walk *w, uint32_t n_heads, uint32_t from, const int16_t *numbers,
                       pleat__blocks_sums_avx2 *sums) {
    const uint32_t row = pleat__blocks_row(w->format), tokens = w->format->tokens;
    const uint32_t n = pleat__min_u32(w->n_tokens - from, PART_TOKENS);
    if (w->packs)
        value_packs(n_heads, w->packs + from / tokens, n / tokens, tokens, numbers, row, sums);
    else if (w->planes)
        plane_dots(n_heads, w->planes + from / tokens, n / tokens, tokens, numbers, row, sums);
    else
        dots(n_heads, w->codes + (size_t)from * ROWS, n, numbers, row, sums);
}

/* A slice of o of n_heads heads, d floats apart, from the sums of n_parts, whose scales are `step` apart. */
INLINE void add_values(uint32_t n_heads, const pleat__blocks_sums_avx2 *sums, uint32_t n_parts, const float *scales,
                       size_t step, const float *biases, const float *rescales, float *o, size_t d) {
    UNROLL
    for (uint32_t h = 0; h < n_heads; h++, o += d) {
        const __m256 rescale = _mm256_set1_ps(rescales[h]);
        __m256 low = _mm256_set1_ps(biases[h]), high = low;
        for (uint32_t p = 0; p < n_parts; p++) {
            const __m256 scale = _mm256_set1_ps(scales[p * step + h]);
            low = _mm256_fmadd_ps(sum_of_head(&sums[p], h, 0), scale, low);
            high = _mm256_fmadd_ps(sum_of_head(&sums[p], h, 8), scale, high);
        }
        _mm256_store_ps(o, _mm256_fmadd_ps(_mm256_load_ps(o), rescale, low));
        _mm256_store_ps(o + 8, _mm256_fmadd_ps(_mm256_load_ps(o + 8), rescale, high));
    }
}

/* A slice of o. */
INLINE void values_of(pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_group = w->query->n_group, d = w->format->head_dim;
    const uint32_t n_parts = pleat__div_up_u32(w->n_tokens, PART_TOKENS), unit = pleat__blocks_unit_of(w, slice);
    const float *scales = w->value_scale + (size_t)unit * PLEAT__STREAMS * w->heads;
    const float *biases = w->value_bias + (size_t)unit * w->heads;
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        const uint32_t n_heads = pleat__min_u32(n_group - head, HEADS);
        float *o = w->acc->o + (size_t)head * d + (size_t)slice * ROWS;
        pleat__blocks_sums_avx2 sums[MAX_PARTS];
        for (uint32_t p = 0, from = 0; p < n_parts; p++, from += PART_TOKENS)
            value_part(w, n_heads, from, pleat__value_numbers(w, unit, head) + from, &sums[p]);
        PLEAT__FOR_HEADS(
            n_heads, add_values(heads, sums, n_parts, scales + head, w->heads, biases + head, w->rescale + head, o, d));
    }
}

/* All steps of a variant: the two that it has of its own, and those that they share. */
#define BLOCKS_STEPS_AVX2(keys_, values_)                                                                    \
    {                                                                                                        \
        .begin = pleat__blocks_begin_avx2, .keys_begin = pleat__blocks_keys_begin_avx2, .keys = (keys_),     \
        .cap = pleat__attn_cap_avx2, .softmax = pleat__blocks_softmax_avx2,                                  \
        .values_begin = pleat__blocks_values_begin_avx2, .values = (values_), .end = pleat__blocks_end_avx2, \
        .pack_numbers = pleat__pack_numbers_avx2, .takes_planes = true, .mean = pleat__blocks_mean_avx2      \
    }

#endif
