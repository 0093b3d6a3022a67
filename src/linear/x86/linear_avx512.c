/* SPDX-License-Identifier: MIT
 *
 * linear_avx512.c: linear.h's kernels for matrices of floats with AVX-512 F and BW.
 *
 * A tile is R output rows by C vectors, one 16-lane accumulator each:
 *
 *     for each 16 columns:  w[r] = 16 weights of row r as f32      R loads and conversions
 *                           acc[r][c] += w[r] * x[c]               R*C FMAs, x[c] from L1
 *
 * One vector takes R = 8, for eight independent chains (latency 4, two FMAs a cycle), and is bound by memory; more
 * vectors take R = 4 and C up to 6, 24 accumulators, where 24 of 28 multiplications are useful.  A (row, vector) pair
 * adds in column order in its own accumulator in every tile shape: its bits are the same in all.
 */
#include <immintrin.h>
#include <string.h>

#include "core/compiler.h"
#include "linear/linear_variants.h"

#define MAX_R 8
#define MAX_C 6

/* How far before the bytes in use lines are asked for.  A tile reads R rows side by side, which hardware prefetchers
 * follow badly: 8 GB/s on one core without, 45 with this (Zen 5, Q8_0, 512 columns).  2 KB is too near,
 * 16 KB no better. */
#define AHEAD_BYTES 8192
#define LINE_BYTES 64

/* Bytes of a weight. */
INLINE int bytes_of(pleat__weight_type type) { return type == PLEAT__W_F32 ? 4 : 2; }

INLINE __m512 load16(pleat__weight_type type, const uint8_t *p, __mmask16 live) {
    if (type == PLEAT__W_F32) return _mm512_maskz_loadu_ps(live, p);
    const __m256i bits = _mm256_maskz_loadu_epi16(live, p);
    if (type == PLEAT__W_F16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* Those of the 32 weights at p that `live` has bits for; the others are 0 and not read. */
INLINE void load32(pleat__weight_type type, const uint8_t *p, uint32_t live, __m512 *w0, __m512 *w1) {
    *w0 = load16(type, p, (__mmask16)live);
    *w1 = load16(type, p + 16 * bytes_of(type), (__mmask16)(live >> 16));
}

/* 32 columns of a tile: rows at p, row_bytes apart; vectors from x[c] + col on. */
INLINE void step(pleat__weight_type type, const int R, const int C, const uint8_t *p, size_t row_bytes, uint32_t live,
                 const void *const *x, uint32_t col, __m512 acc[MAX_R][MAX_C]) {
    UNROLL
    for (int r = 0; r < R; r++) {
        __m512 w0, w1;
        load32(type, p + r * row_bytes, live, &w0, &w1);
        UNROLL
        for (int c = 0; c < C; c++) {
            const float *xc = (const float *)x[c] + col;
            acc[r][c] = _mm512_fmadd_ps(w0, _mm512_maskz_loadu_ps((__mmask16)live, xc), acc[r][c]);
            acc[r][c] = _mm512_fmadd_ps(w1, _mm512_maskz_loadu_ps((__mmask16)(live >> 16), xc + 16), acc[r][c]);
        }
    }
}

INLINE void tile(pleat__weight_type type, const int R, const int C, const pleat__matrix *w, uint32_t r0,
                 const void *const *x, float *const *y, bool add) {
    const int step_bytes = 32 * bytes_of(type);
    const uint8_t *p = w->data + r0 * w->row_bytes;
    const uint8_t *ahead = p + AHEAD_BYTES;
    __m512 acc[MAX_R][MAX_C];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int c = 0; c < C; c++) acc[r][c] = _mm512_setzero_ps();
    }

    uint32_t col = 0;
    for (; col + 32 <= w->cols; col += 32, p += step_bytes, ahead += R * step_bytes) {
        UNROLL
        for (int line = 0; line < R * step_bytes; line += LINE_BYTES)
            _mm_prefetch((const char *)ahead + line, _MM_HINT_T0);
        step(type, R, C, p, w->row_bytes, ~0u, x, col, acc);
    }
    if (col < w->cols) step(type, R, C, p, w->row_bytes, (1u << (w->cols - col)) - 1, x, col, acc);

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int c = 0; c < C; c++) {
            const float sum = _mm512_reduce_add_ps(acc[r][c]);
            y[c][r0 + r] = add ? y[c][r0 + r] + sum : sum;
        }
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= MAX_C; n -= MAX_C, x += MAX_C, y += MAX_C)
        band_of(tile, type, 4, MAX_C, w, row_from, row_to, x, y, add);
    switch (n) {
        case 5: band_of(tile, type, 4, 5, w, row_from, row_to, x, y, add); break;
        case 4: band_of(tile, type, 4, 4, w, row_from, row_to, x, y, add); break;
        case 3: band_of(tile, type, 4, 3, w, row_from, row_to, x, y, add); break;
        case 2: band_of(tile, type, 4, 2, w, row_from, row_to, x, y, add); break;
        case 1: band_of(tile, type, 8, 1, w, row_from, row_to, x, y, add); break;
        default: break;
    }
}

INLINE void load(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    for (uint32_t r = row_from; r < row_to; r++, out += w->cols) {
        const uint8_t *p = w->data + r * w->row_bytes;
        for (uint32_t col = 0; col < w->cols; col += 32, p += 32 * bytes_of(type)) {
            const uint32_t live = w->cols - col >= 32 ? ~0u : (1u << (w->cols - col)) - 1;
            __m512 w0, w1;
            load32(type, p, live, &w0, &w1);
            _mm512_mask_storeu_ps(out + col, (__mmask16)live, w0);
            _mm512_mask_storeu_ps(out + col + 16, (__mmask16)(live >> 16), w1);
        }
    }
}

LINEAR_VARIANTS

void pleat__linear_fill_avx512(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    (void)n_limbs; /* of floats */
    LINEAR_FILL(dsp);
    dsp->vector_rows = 64;
}
