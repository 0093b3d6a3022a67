/* SPDX-License-Identifier: MIT
 *
 * packed_avx512.c: linear.h's kernels for packed matrices with AVX-512 and its VNNI.
 *
 * A vector register is 16 output rows.  The byte products of 4 columns with 4 codes of a step row, broadcast from
 * memory, add to 16 sums at once; no sum over lanes is left at the end:
 *
 *     for each slice of 32 columns, or its halves:   sums = high limbs * 256 + low limbs, less what codes stand too high
 *                                                    acc += (float)sums * (weights' scales * row's scale), and minima
 *
 * One vector is bound by memory: high and low limbs have sums of their own, so that chains are short.  Several vectors,
 * up to MAX_C, hold the codes in 8 registers and take turns in program order: a chain of 16 products, each waiting 5
 * cycles for the last, would fill the scheduler instead.
 */
#define VECTOR_BYTES 64

#include "linear/linear_variants.h"
#include "linear/x86/packed_codes.h"

#define MAX_C 8

INLINE __m512i broadcast4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Columns 4*from .. 4*to - 1 of a slice. */
typedef struct part {
    uint32_t from, to;
} part;

INLINE __m512i sums_for_one(pleat__weight_type type, const part k_of, const uint8_t *p, const pleat__coded *x) {
    __m512i high = _mm512_setzero_si512(), low = high;
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        const __m512i w = codes4(type, p, k, 0);
        high = _mm512_dpbusd_epi32(high, w, broadcast4(x->codes.limbs.high + 4 * k));
        low = _mm512_dpbusd_epi32(low, w, broadcast4(x->codes.limbs.low + 4 * k));
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

INLINE void sums_for_many(pleat__weight_type type, const int C, const part k_of, const uint8_t *p,
                          const pleat__coded *const *x, uint32_t b, __m512i *sums) {
    __m512i w[8];
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) w[k] = codes4(type, p, k, 0);
    UNROLL
    for (int c = 0; c < C; c++) sums[c] = _mm512_setzero_si512();
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        UNROLL
        for (int c = 0; c < C; c++)
            sums[c] = _mm512_dpbusd_epi32(sums[c], w[k], broadcast4(x[c][b].codes.limbs.high + 4 * k));
    }
    UNROLL
    for (int c = 0; c < C; c++) sums[c] = _mm512_slli_epi32(sums[c], 8);
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        UNROLL
        for (int c = 0; c < C; c++)
            sums[c] = _mm512_dpbusd_epi32(sums[c], w[k], broadcast4(x[c][b].codes.limbs.low + 4 * k));
    }
}

/* Add the products of half h of slice b, or of all of it where it has one scale. */
INLINE void add_half(pleat__weight_type type, const int C, const uint32_t h, const uint8_t *p, const uint8_t *record,
                     const pleat__coded *const *x, uint32_t b, __m512 *acc) {
    const bool halves = pleat__weight_formats[type].has_halves;
    const part k_of = {halves ? 4 * h : 0, halves ? 4 * h + 4 : 8};
    const uint32_t s = b % pleat__slices_of(type);
    const row_scales w = scales_at(type, record, halves ? 2 * s + h : s, 0);
    __m512i sums[MAX_C];
    if (C == 1)
        sums[0] = sums_for_one(type, k_of, p, &x[0][b]);
    else
        sums_for_many(type, C, k_of, p, x, b, sums);
    UNROLL
    for (int c = 0; c < C; c++) {
        const pleat__coded *xb = &x[c][b];
        acc[c] = add_scaled(type, sums[c], &w, xb->scale, halves ? xb->sum[h] : xb->total, acc[c]);
    }
}

/* A strip's first `live` rows for C vectors. */
INLINE void tile(pleat__weight_type type, const int C, const pleat__matrix *w, uint32_t r0, __mmask16 live,
                 const pleat__coded *const *x, float *const *y, bool add) {
    const uint32_t n_slices = w->cols / SLICE;
    const uint8_t *strip = w->data + r0 * w->row_bytes;
    const uint8_t *ahead = strip + AHEAD_BYTES;
    __m512 acc[MAX_C];
    UNROLL
    for (int c = 0; c < C; c++) acc[c] = _mm512_setzero_ps();

    for (uint32_t b = 0; b < n_slices; b++, ahead += pleat__slice_bytes(type)) {
        const uint8_t *p = strip + pleat__codes_at(type, b), *record = strip + pleat__record_at(type, n_slices, b);
        if (C == 1) ask_for(type, ahead);
        add_half(type, C, 0, p, record, x, b, acc);
        if (pleat__weight_formats[type].has_halves) add_half(type, C, 1, p, record, x, b, acc);
    }
    UNROLL
    for (int c = 0; c < C; c++) {
        float *to = y[c] + r0;
        if (add) acc[c] = _mm512_add_ps(_mm512_maskz_loadu_ps(live, to), acc[c]);
        _mm512_mask_storeu_ps(to, live, acc[c]);
    }
}

/* All rows for C vectors. */
INLINE void band(pleat__weight_type type, const int C, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                 const void *const *x, float *const *y, bool add) {
    const pleat__coded *xs[MAX_C];
    for (int c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t r = row_from; r < row_to; r += ROWS) {
        const uint32_t n = row_to - r;
        tile(type, C, w, r, (__mmask16)(n >= ROWS ? 0xFFFF : (1u << n) - 1), xs, y, add);
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= MAX_C; n -= MAX_C, x += MAX_C, y += MAX_C) band(type, MAX_C, w, row_from, row_to, x, y, add);
    for (; n >= 4; n -= 4, x += 4, y += 4) band(type, 4, w, row_from, row_to, x, y, add);
    switch (n) {
        case 3: band(type, 3, w, row_from, row_to, x, y, add); break;
        case 2: band(type, 2, w, row_from, row_to, x, y, add); break;
        case 1: band(type, 1, w, row_from, row_to, x, y, add); break;
        default: break;
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* The largest lane in every lane. */
INLINE __m512i max_in_all(__m512i v) {
    v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0x4E));
    v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0xB1));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4E));
    return _mm512_max_epu32(v, _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xB1));
}

/* Codes of 16 activations in two limbs; returns them whole. */
INLINE __m512i code16(__m512 x, __m512 inverse, int8_t *high, int8_t *low) {
    const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    const __m512i highs = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(highs));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(codes)); /* its low byte is codes - 256*highs */
    return codes;
}

/* The sum of 32-bit elements modulo 2^32: what infinite activations were coded to may pass int. */
static inline uint32_t wrapping_sum(__m512i x) {
    const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale. */
static void code(const float *x, uint32_t cols, pleat__coded *out) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (; cols > 0; cols -= SLICE, x += SLICE, out++) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
        const __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
        const __m512 max = _mm512_castsi512_ps(max_in_all(_mm512_max_epu32(m0, m1)));
        const __mmask16 live = _mm512_cmp_ps_mask(max, _mm512_set1_ps(PLEAT__CODED_ZERO), _CMP_NLT_UQ);
        const __m512 code_max = _mm512_set1_ps(PLEAT__CODE_MAX);
        const __m512 inverse = _mm512_maskz_div_ps(live, code_max, max);
        const __m512i c0 = code16(x0, inverse, out->codes.limbs.high, out->codes.limbs.low);
        const __m512i c1 = code16(x1, inverse, out->codes.limbs.high + 16, out->codes.limbs.low + 16);
        const uint32_t sum0 = wrapping_sum(c0), sum1 = wrapping_sum(c1);
        out->scale = _mm512_cvtss_f32(_mm512_maskz_div_ps(live, max, code_max));
        out->sum[0] = (int32_t)sum0;
        out->sum[1] = (int32_t)sum1;
        out->total = (int32_t)(sum0 + sum1);
    }
}

PACKED_VARIANTS

void pleat__linear_mul_packed_avx512(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from,
                                     uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    packed_muls[type](w, row_from, row_to, x, y, n, add);
}

void pleat__linear_fill_packed_avx512(pleat__linear_dsp *dsp) { PACKED_FILL(dsp, UINT32_MAX); }
