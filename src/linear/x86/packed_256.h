/* SPDX-License-Identifier: MIT
 *
 * packed_256.h: what packed_avx2.c and packed_avxvnni.c have in common: a block's sums to f32, and the coding of rows.
 * They supply the integer sums of a block and the form of 32 codes, as functions that are constants at each call.
 */
#ifndef PLEAT_LINEAR_X86_PACKED_256_H
#define PLEAT_LINEAR_X86_PACKED_256_H

#include <immintrin.h>
#include <string.h>

#include "core/compiler.h"
#include "linear/linear_variants.h"

#define BLOCK 32u
#define ROWS PLEAT__STRIP_ROWS

/* How far before the bytes in use lines are asked for; for one vector, which reads weights from memory. */
#define AHEAD_BYTES 4096
#define LINE_BYTES 64

#define MAX_C 3 /* most vectors of a band */

/* Dot products of 16 rows, halves of 8, of the block whose codes start at p with block b of C vectors. */
typedef void (*block_sums_fn)(pleat__weight_type type, const int C, const uint8_t *p, const pleat__coded *const *x,
                              uint32_t b, __m256i sums[MAX_C][2]);

/* 32 codes in the variant's form. */
typedef void (*store_codes_fn)(const __m256i codes[4], pleat__coded *out);

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Bytes of codes in a block of 16 rows. */
INLINE int code_bytes(pleat__weight_type type) { return type == PLEAT__W_Q8_0 ? 512 : 256; }

INLINE __m256i offset_of(pleat__weight_type type, const pleat__coded *x) {
    return _mm256_set1_epi32(x->offset[type == PLEAT__W_Q4_0]);
}

/* A strip for C vectors: acc[c], halves of 8 rows. */
INLINE void strip(pleat__weight_type type, const int C, block_sums_fn block_sums, const uint8_t *p, uint32_t n_blocks,
                  const pleat__coded *const *x, __m256 acc[MAX_C][2]) {
    const uint8_t *scales = p + (size_t)n_blocks * code_bytes(type);
    const uint8_t *ahead = p + AHEAD_BYTES;
    for (uint32_t b = 0; b < n_blocks; b++, p += code_bytes(type), scales += 2 * ROWS) {
        if (C == 1) {
            UNROLL
            for (int line = 0; line <= code_bytes(type); line += LINE_BYTES)
                _mm_prefetch((const char *)ahead + line, _MM_HINT_T0);
            ahead += code_bytes(type) + 2 * ROWS;
        }
        __m256i sums[MAX_C][2];
        block_sums(type, C, p, x, b, sums);
        UNROLL
        for (int half = 0; half < 2; half++) {
            const __m256 w_scales = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales + half));
            UNROLL
            for (int c = 0; c < C; c++)
                acc[c][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[c][half]),
                                               _mm256_mul_ps(w_scales, _mm256_set1_ps(x[c][b].scale)), acc[c][half]);
        }
    }
}

/* The first `live` of 16 rows. */
INLINE void store_rows(const __m256 acc[2], uint32_t live, float *to, bool add) {
    float rows[ROWS];
    UNROLL
    for (int half = 0; half < 2; half++) {
        if (live >= ROWS) {
            const __m256 was = add ? _mm256_loadu_ps(to + 8 * half) : _mm256_setzero_ps();
            _mm256_storeu_ps(to + 8 * half, add ? _mm256_add_ps(was, acc[half]) : acc[half]);
        } else {
            _mm256_storeu_ps(rows + 8 * half, acc[half]);
        }
    }
    if (live >= ROWS) return;
    for (uint32_t r = 0; r < live; r++) to[r] = add ? to[r] + rows[r] : rows[r];
}

/* All rows for C vectors. */
INLINE void band(pleat__weight_type type, const int C, block_sums_fn block_sums, const pleat__matrix *w,
                 uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y, bool add) {
    const pleat__coded *xs[MAX_C];
    for (int c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t r = row_from; r < row_to; r += ROWS) {
        __m256 acc[MAX_C][2];
        UNROLL
        for (int c = 0; c < C; c++) acc[c][0] = acc[c][1] = _mm256_setzero_ps();
        strip(type, C, block_sums, w->data + r * w->row_bytes, w->cols / BLOCK, xs, acc);
        UNROLL
        for (int c = 0; c < C; c++) store_rows(acc[c], row_to - r, y[c] + r, add);
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* The largest lane in every lane. */
INLINE __m256i max_in_all(__m256i v) {
    v = _mm256_max_epu32(v, _mm256_permute4x64_epi64(v, 0x4E));
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4E));
    return _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xB1));
}

INLINE uint32_t sum_of(__m256i v) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale. */
INLINE void code_row(const float *x, uint32_t cols, store_codes_fn store_codes, pleat__coded *out) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    for (; cols > 0; cols -= BLOCK, x += BLOCK, out++) {
        __m256i max_bits = _mm256_setzero_si256(), codes[4], sum = _mm256_setzero_si256();
        UNROLL
        for (int i = 0; i < 4; i++)
            max_bits = _mm256_max_epu32(max_bits,
                                        _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), magnitude));
        const __m256 max = _mm256_castsi256_ps(max_in_all(max_bits));
        const __m256 live = _mm256_cmp_ps(max, _mm256_set1_ps(PLEAT__CODED_ZERO), _CMP_NLT_UQ);
        const __m256 code_max = _mm256_set1_ps(PLEAT__CODE_MAX);
        const __m256 inverse = _mm256_and_ps(_mm256_div_ps(code_max, max), live);
        UNROLL
        for (int i = 0; i < 4; i++) {
            codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
            sum = _mm256_add_epi32(sum, codes[i]);
        }
        store_codes(codes, out);
        out->scale = _mm256_cvtss_f32(_mm256_and_ps(_mm256_div_ps(max, code_max), live));
        out->offset[0] = (int32_t)(0 - 128 * sum_of(sum));
        out->offset[1] = (int32_t)(0 - 8 * sum_of(sum));
    }
}

#endif
