/* SPDX-License-Identifier: MIT
 *
 * linear_avx2.c: linear.h's kernels for matrices of floats with AVX2, FMA and F16C.
 *
 * A tile is R output rows by C vectors, one 8-lane accumulator each, 32 columns at a time.  R = 8 for one vector (eight
 * independent chains), else R = 4 and C up to 3: 12 accumulators of the 16 registers.  What is left of a row of floats
 * after the last 32 columns is added one by one to the accumulator's sum.  A (row, vector) pair adds in one order in
 * every tile shape: its bits are the same in all.
 */
#include <immintrin.h>
#include <string.h>

#include "core/compiler.h"
#include "linear/linear_variants.h"

#define MAX_R 8
#define MAX_C 3

/* How far before the bytes in use lines are asked for; see linear_avx512.c. */
#define AHEAD_BYTES 8192
#define LINE_BYTES 64

/* Bytes of a weight. */
INLINE int bytes_of(pleat__weight_type type) { return type == PLEAT__W_F32 ? 4 : 2; }

/* Weights 8*part .. 8*part+7 at p. */
INLINE __m256 load8(pleat__weight_type type, const uint8_t *p, int part) {
    if (type == PLEAT__W_F32) return _mm256_loadu_ps((const float *)p + 8 * part);
    const __m128i bits = _mm_loadu_si128((const __m128i *)p + part);
    if (type == PLEAT__W_F16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Weight `i` at p. */
INLINE float load1(pleat__weight_type type, const uint8_t *p, uint32_t i) {
    uint32_t bits = 0;
    if (type == PLEAT__W_F32)
        memcpy(&bits, p + (size_t)i * 4, 4);
    else
        memcpy(&bits, p + (size_t)i * 2, 2);
    if (type == PLEAT__W_F16) return _cvtsh_ss((unsigned short)bits);
    if (type == PLEAT__W_BF16) bits <<= 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE float sum8(__m256 v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* 32 columns of a tile: rows at p, row_bytes apart; vectors from x[c] + col on. */
INLINE void step(pleat__weight_type type, const int R, const int C, const uint8_t *p, size_t row_bytes,
                 const void *const *x, uint32_t col, __m256 acc[MAX_R][MAX_C]) {
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int part = 0; part < 4; part++) {
            const __m256 wr = load8(type, p + r * row_bytes, part);
            UNROLL
            for (int c = 0; c < C; c++)
                acc[r][c] = _mm256_fmadd_ps(wr, _mm256_loadu_ps((const float *)x[c] + col + 8 * part), acc[r][c]);
        }
    }
}

INLINE void tile(pleat__weight_type type, const int R, const int C, const pleat__matrix *w, uint32_t r0,
                 const void *const *x, float *const *y, bool add) {
    const int step_bytes = 32 * bytes_of(type);
    const uint8_t *p = w->data + r0 * w->row_bytes;
    const uint8_t *ahead = p + AHEAD_BYTES;
    __m256 acc[MAX_R][MAX_C];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int c = 0; c < C; c++) acc[r][c] = _mm256_setzero_ps();
    }

    uint32_t col = 0;
    for (; col + 32 <= w->cols; col += 32, p += step_bytes, ahead += R * step_bytes) {
        UNROLL
        for (int line = 0; line < R * step_bytes; line += LINE_BYTES)
            _mm_prefetch((const char *)ahead + line, _MM_HINT_T0);
        step(type, R, C, p, w->row_bytes, x, col, acc);
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int c = 0; c < C; c++) {
            float sum = sum8(acc[r][c]);
            for (uint32_t i = 0; i < w->cols - col; i++)
                sum = __builtin_fmaf(load1(type, p + r * w->row_bytes, i), ((const float *)x[c])[col + i], sum);
            y[c][r0 + r] = add ? y[c][r0 + r] + sum : sum;
        }
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 3 && n != 4; n -= 3, x += 3, y += 3) band_of(tile, type, 4, 3, w, row_from, row_to, x, y, add);
    for (; n >= 2; n -= 2, x += 2, y += 2) band_of(tile, type, 4, 2, w, row_from, row_to, x, y, add);
    if (n == 1) band_of(tile, type, 8, 1, w, row_from, row_to, x, y, add);
}

INLINE void load(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    for (uint32_t r = row_from; r < row_to; r++, out += w->cols) {
        const uint8_t *p = w->data + r * w->row_bytes;
        uint32_t col = 0;
        for (; col + 32 <= w->cols; col += 32, p += 32 * bytes_of(type)) {
            UNROLL
            for (int part = 0; part < 4; part++) _mm256_storeu_ps(out + col + 8 * part, load8(type, p, part));
        }
        for (uint32_t i = 0; i < w->cols - col; i++) out[col + i] = load1(type, p, i);
    }
}

LINEAR_VARIANTS

void pleat__linear_fill_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    (void)n_limbs; /* of floats */
    LINEAR_FILL(dsp);
    dsp->vector_rows = 16;
}
