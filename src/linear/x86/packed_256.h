/* SPDX-License-Identifier: MIT
 *
 * packed_256.h: what packed_avx2.c, packed_many_avx2.c and packed_avxvnni.c have in common: a slice's sums to f32, and
 * the coding of rows.  They supply the integer sums of a part of a slice, as a function that is a constant at each call.
 */
#ifndef PLEAT_LINEAR_X86_PACKED_256_H
#define PLEAT_LINEAR_X86_PACKED_256_H

#define VECTOR_BYTES 32

#include "linear/linear_variants.h"
#include "linear/x86/packed_codes.h"

#define MAX_C 3 /* most vectors of a band */

/* What is added to v comes after it: gcc 12 adds many products in the end, from memory, otherwise. */
#define IN_ORDER(v) __asm__("" : "+x"(v))

/* Words of columns 0 2 1 3 of each four: even and odd ones of bytes are taken apart by a mask and a shift. */
INLINE __m256i in_pairs(__m256i words) { return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xD8), 0xD8); }

INLINE __m256i broadcast_pair(const int16_t *p) {
    int32_t two;
    memcpy(&two, p, sizeof two);
    return _mm256_set1_epi32(two);
}

/* Columns 4*from .. 4*to - 1 of a slice. */
typedef struct part {
    uint32_t from, to;
} part;

/* Dot products of 16 rows, in halves of 8, with block b of C vectors, on a part of the slice whose codes start at p. */
typedef void (*part_sums_fn)(pleat__weight_type type, const uint32_t n_limbs, const int C, const part k_of,
                             const uint8_t *p, const pleat__coded *const *x, uint32_t b, __m256i sums[MAX_C][2]);

/* ---- byte products ----------------------------------------------------------------------------------------------- */

/* Groups of 4 columns in a run, whose sums of byte products with a limb fit 16 bits; 0: codes are too wide.
 *
 *     codes up to   15 (2, 3, 4 bits)   31 (5 bits, MXFP4)   63 (6 bits)
 *     a run         32 columns          16                   8                code * 128 * columns / 2 < 32768 */
INLINE uint32_t run_of(pleat__weight_type type) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    if (pleat__has_table(type)) return f->zero_shift == 4 ? 4 : 0;
    const int bits = f->low_bits + f->high_bits;
    return bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 0;
}

INLINE __m256i broadcast4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}

/* sums + pairs of 16 bits, widened. */
INLINE __m256i add_run(__m256i sums, __m256i pairs) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Codes of 16 bits from their limbs, columns 0 2 1 3 of each four. */
INLINE void join_limbs(const uint32_t n_limbs, const pleat__coded *x, int16_t *codes) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i whole = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x->codes.limbs.high + i));
        if (n_limbs == 2) {
            const __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x->codes.limbs.low + i));
            whole = _mm256_add_epi16(_mm256_slli_epi16(whole, 8), low);
        }
        _mm256_store_si256((__m256i *)(void *)codes + i, in_pairs(whole));
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Add the products of half h of slice b, or of all of it where it has one scale. */
INLINE void add_half(pleat__weight_type type, const uint32_t n_limbs, const int C, part_sums_fn part_sums,
                     const uint32_t h, const uint8_t *p, const uint8_t *record, const pleat__coded *const *x,
                     uint32_t b, __m256 acc[MAX_C][2]) {
    const bool halves = pleat__weight_formats[type].has_halves;
    const part k_of = {halves ? 4 * h : 0, halves ? 4 * h + 4 : 8};
    const uint32_t s = b % pleat__slices_of(type);
    __m256i sums[MAX_C][2];
    part_sums(type, n_limbs, C, k_of, p, x, b, sums);
    UNROLL
    for (uint32_t rows = 0; rows < 2; rows++) {
        const row_scales w = scales_at(type, record, halves ? 2 * s + h : s, rows);
        UNROLL
        for (int c = 0; c < C; c++) {
            const pleat__coded *xb = &x[c][b];
            acc[c][rows] =
                add_scaled(type, sums[c][rows], &w, xb->scale, halves ? xb->sum[h] : xb->total, acc[c][rows]);
        }
    }
}

/* A strip for C vectors: acc[c], halves of 8 rows. */
INLINE void strip(pleat__weight_type type, const uint32_t n_limbs, const int C, part_sums_fn part_sums,
                  const uint8_t *p, uint32_t n_slices, const pleat__coded *const *x, __m256 acc[MAX_C][2]) {
    const uint8_t *ahead = p + AHEAD_BYTES;
    for (uint32_t b = 0; b < n_slices; b++, ahead += pleat__slice_bytes(type)) {
        const uint8_t *codes = p + pleat__codes_at(type, b), *record = p + pleat__record_at(type, n_slices, b);
        if (C == 1) ask_for(type, ahead);
        add_half(type, n_limbs, C, part_sums, 0, codes, record, x, b, acc);
        if (pleat__weight_formats[type].has_halves) add_half(type, n_limbs, C, part_sums, 1, codes, record, x, b, acc);
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
INLINE void band(pleat__weight_type type, const uint32_t n_limbs, const int C, part_sums_fn part_sums,
                 const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y,
                 bool add) {
    const pleat__coded *xs[MAX_C];
    for (int c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t r = row_from; r < row_to; r += ROWS) {
        __m256 acc[MAX_C][2];
        UNROLL
        for (int c = 0; c < C; c++) acc[c][0] = acc[c][1] = _mm256_setzero_ps();
        strip(type, n_limbs, C, part_sums, w->data + r * w->row_bytes, w->cols / SLICE, xs, acc);
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

/* 32-bit lanes of four registers, which fit bytes, as 32 bytes. */
INLINE void store_bytes(const __m256i v[4], int8_t *out) {
    const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    _mm256_storeu_si256((__m256i *)out, _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

/* One limb of 32 codes. */
INLINE void store_one_limb(const __m256i codes[4], pleat__coded *out) { store_bytes(codes, out->codes.one_limb.high); }

/* Two limbs of 32 codes. */
INLINE void store_limbs(const __m256i codes[4], pleat__coded *out) {
    __m256i high[4], low[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        high[i] = _mm256_srai_epi32(_mm256_add_epi32(codes[i], _mm256_set1_epi32(128)), 8);
        low[i] = _mm256_sub_epi32(codes[i], _mm256_slli_epi32(high[i], 8));
    }
    store_bytes(high, out->codes.limbs.high);
    store_bytes(low, out->codes.limbs.low);
}

/* The codes whole, those of columns 0 2 1 3 of each four (packed_many_avx2.c). */
INLINE void store_whole(const __m256i codes[4], pleat__coded *out) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(codes[2 * i], codes[2 * i + 1]), 0xD8);
        _mm256_storeu_si256((__m256i *)(void *)out->codes.whole + i, in_pairs(words));
    }
}

typedef void (*store_codes_fn)(const __m256i codes[4], pleat__coded *out);

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale.
 * store_codes and is_many are of two limbs. */
INLINE void code_as(store_codes_fn store_codes, const bool is_many, const uint32_t n_limbs, const float *x,
                    uint32_t cols, pleat__coded *out) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    for (; cols > 0; cols -= SLICE, x += SLICE, out++) {
        __m256i max_bits = _mm256_setzero_si256(), codes[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            max_bits = _mm256_max_epu32(max_bits,
                                        _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), magnitude));
        const __m256 max = _mm256_castsi256_ps(max_in_all(max_bits));
        const __m256 live = _mm256_cmp_ps(max, _mm256_set1_ps(PLEAT__CODED_ZERO), _CMP_NLT_UQ);
        const __m256 code_max = _mm256_set1_ps(pleat__code_max(n_limbs));
        const __m256 inverse = _mm256_and_ps(_mm256_div_ps(code_max, max), live);
        UNROLL
        for (int i = 0; i < 4; i++) {
            codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
        }
        out->scale = _mm256_cvtss_f32(_mm256_and_ps(_mm256_div_ps(max, code_max), live));
        const uint32_t sum0 = sum_of(_mm256_add_epi32(codes[0], codes[1]));
        const uint32_t sum1 = sum_of(_mm256_add_epi32(codes[2], codes[3]));
        if (n_limbs == 1) {
            store_one_limb(codes, out);
            put_all_sums(sum0, sum1, out);
        } else {
            store_codes(codes, out);
            put_sums(sum0, sum1, is_many, out);
        }
    }
}

#endif
