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
#include "linear/x86/packed_512.h"

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

/* One limb has two chains too, of every other group. */
INLINE __m512i sums_for_one(pleat__weight_type type, const uint32_t n_limbs, const part k_of, const uint8_t *p,
                            const pleat__coded *x) {
    __m512i high = _mm512_setzero_si512(), low = high;
    if (n_limbs == 1) {
        UNROLL
        for (uint32_t k = k_of.from; k < k_of.to; k += 2) {
            high = _mm512_dpbusd_epi32(high, codes4(type, p, k, 0), broadcast4(x->codes.limbs.high + 4 * k));
            low = _mm512_dpbusd_epi32(low, codes4(type, p, k + 1, 0), broadcast4(x->codes.limbs.high + 4 * (k + 1)));
        }
        return _mm512_add_epi32(high, low);
    }
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        const __m512i w = codes4(type, p, k, 0);
        high = _mm512_dpbusd_epi32(high, w, broadcast4(x->codes.limbs.high + 4 * k));
        low = _mm512_dpbusd_epi32(low, w, broadcast4(x->codes.limbs.low + 4 * k));
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

INLINE void sums_for_many(pleat__weight_type type, const uint32_t n_limbs, const int C, const part k_of,
                          const uint8_t *p, const pleat__coded *const *x, uint32_t b, __m512i *sums) {
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
    if (n_limbs == 1) return;
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
INLINE void add_half(pleat__weight_type type, const uint32_t n_limbs, const int C, const uint32_t h, const uint8_t *p,
                     const uint8_t *record, const pleat__coded *const *x, uint32_t b, __m512 *acc) {
    const bool halves = pleat__weight_formats[type].has_halves;
    const part k_of = {halves ? 4 * h : 0, halves ? 4 * h + 4 : 8};
    const uint32_t s = b % pleat__slices_of(type);
    const row_scales w = scales_at(type, record, halves ? 2 * s + h : s, 0);
    __m512i sums[MAX_C];
    if (C == 1)
        sums[0] = sums_for_one(type, n_limbs, k_of, p, &x[0][b]);
    else
        sums_for_many(type, n_limbs, C, k_of, p, x, b, sums);
    UNROLL
    for (int c = 0; c < C; c++) {
        const pleat__coded *xb = &x[c][b];
        acc[c] = add_scaled(type, sums[c], &w, xb->scale, halves ? xb->sum[h] : xb->total, acc[c]);
    }
}

/* A strip's first `live` rows for C vectors. */
INLINE void tile(pleat__weight_type type, const uint32_t n_limbs, const int C, const pleat__matrix *w, uint32_t r0,
                 __mmask16 live, const pleat__coded *const *x, float *const *y, bool add) {
    const uint32_t n_slices = w->cols / SLICE;
    const uint8_t *strip = w->data + r0 * w->row_bytes;
    const uint8_t *ahead = strip + AHEAD_BYTES;
    __m512 acc[MAX_C];
    UNROLL
    for (int c = 0; c < C; c++) acc[c] = _mm512_setzero_ps();

    for (uint32_t b = 0; b < n_slices; b++, ahead += pleat__slice_bytes(type)) {
        const uint8_t *p = strip + pleat__codes_at(type, b), *record = strip + pleat__record_at(type, n_slices, b);
        if (C == 1) ask_for(type, ahead);
        add_half(type, n_limbs, C, 0, p, record, x, b, acc);
        if (pleat__weight_formats[type].has_halves) add_half(type, n_limbs, C, 1, p, record, x, b, acc);
    }
    UNROLL
    for (int c = 0; c < C; c++) {
        float *to = y[c] + r0;
        if (add) acc[c] = _mm512_add_ps(_mm512_maskz_loadu_ps(live, to), acc[c]);
        _mm512_mask_storeu_ps(to, live, acc[c]);
    }
}

/* All rows for C vectors. */
INLINE void band(pleat__weight_type type, const uint32_t n_limbs, const int C, const pleat__matrix *w,
                 uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y, bool add) {
    const pleat__coded *xs[MAX_C];
    for (int c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t r = row_from; r < row_to; r += ROWS) {
        const uint32_t n = row_to - r;
        tile(type, n_limbs, C, w, r, (__mmask16)(n >= ROWS ? 0xFFFF : (1u << n) - 1), xs, y, add);
    }
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= MAX_C; n -= MAX_C, x += MAX_C, y += MAX_C) band(type, n_limbs, MAX_C, w, row_from, row_to, x, y, add);
    for (; n >= 4; n -= 4, x += 4, y += 4) band(type, n_limbs, 4, w, row_from, row_to, x, y, add);
    switch (n) {
        case 3: band(type, n_limbs, 3, w, row_from, row_to, x, y, add); break;
        case 2: band(type, n_limbs, 2, w, row_from, row_to, x, y, add); break;
        case 1: band(type, n_limbs, 1, w, row_from, row_to, x, y, add); break;
        default: break;
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* Codes of 16 activations, at `at`, in two limbs. */
INLINE void store_limbs(__m512i codes, uint32_t at, pleat__coded *out) {
    const __m512i highs = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)(out->codes.limbs.high + at), _mm512_cvtepi32_epi8(highs));
    /* its low byte is codes - 256*highs */
    _mm_storeu_si128((__m128i *)(out->codes.limbs.low + at), _mm512_cvtepi32_epi8(codes));
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_as(store_limbs, false, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_mul_packed_avx512(pleat__weight_type type, uint32_t n_limbs, const pleat__matrix *w,
                                     uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y,
                                     uint32_t n, bool add) {
    packed_muls[n_limbs - 1][type](w, row_from, row_to, x, y, n, add);
}

void pleat__linear_fill_packed_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    PACKED_FILL(dsp, n_limbs, UINT32_MAX);
}
