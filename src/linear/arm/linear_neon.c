/* SPDX-License-Identifier: MIT
 *
 * linear_neon.c: linear.h's kernels for matrices of floats with registers of four.
 *
 * A tile is R output rows by C vectors, two registers of sums each, 32 columns at a time: 8 rows of one vector or 4 of
 * two, 16 registers of sums either way.  What is left of a row after the last 32 columns is added one by one to
 * the sum of the registers.  A (row, vector) pair adds in one order in every tile shape: its bits are the same in all.
 */
#include <arm_neon.h>
#include <string.h>

#include "core/compiler.h"
#include "core/half.h"
#include "linear/linear_variants.h"

#define MAX_R 8
#define MAX_C 2

/* How far before the bytes in use lines are asked for. */
#define AHEAD_BYTES 4096
#define LINE_BYTES 64

/* Bytes of a weight. */
INLINE int bytes_of(pleat__weight_type type) { return type == PLEAT__W_F32 ? 4 : 2; }

/* Weights 8*part .. 8*part+7 at p. */
INLINE float32x4x2_t load8(pleat__weight_type type, const uint8_t *p, int part) {
    if (type == PLEAT__W_F32) {
        const float *at = (const float *)(const void *)p + 8 * (size_t)part;
        return (float32x4x2_t){{vld1q_f32(at), vld1q_f32(at + 4)}};
    }
    const uint16x8_t bits = vreinterpretq_u16_u8(vld1q_u8(p + 16 * (size_t)part));
    if (type == PLEAT__W_F16) {
        const float16x8_t halves = vreinterpretq_f16_u16(bits);
        return (float32x4x2_t){{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
    }
    const uint16x8_t zero = vdupq_n_u16(0);
    return (float32x4x2_t){
        {vreinterpretq_f32_u16(vzip1q_u16(zero, bits)), vreinterpretq_f32_u16(vzip2q_u16(zero, bits))}};
}

/* Weight `i` at p. */
INLINE float load1(pleat__weight_type type, const uint8_t *p, uint32_t i) {
    float value;
    uint16_t half;
    if (type == PLEAT__W_F32) {
        memcpy(&value, p + (size_t)i * 4, sizeof value);
        return value;
    }
    memcpy(&half, p + (size_t)i * 2, sizeof half);
    return type == PLEAT__W_F16 ? pleat__f16_to_f32(half) : pleat__bf16_to_f32(half);
}

/* 32 columns of a tile: rows at p, row_bytes apart; vectors from x[c] + col on. */
INLINE void step(pleat__weight_type type, const int R, const int C, const uint8_t *p, size_t row_bytes,
                 const void *const *x, uint32_t col, float32x4_t acc[MAX_R][MAX_C][2]) {
    for (int part = 0; part < 4; part++) {
        float32x4_t v[MAX_C][2];
        for (int c = 0; c < C; c++) {
            const float *at = (const float *)x[c] + col + 8 * part;
            v[c][0] = vld1q_f32(at);
            v[c][1] = vld1q_f32(at + 4);
        }
        for (int r = 0; r < R; r++) {
            const float32x4x2_t w = load8(type, p + r * row_bytes, part);
            for (int c = 0; c < C; c++) {
                acc[r][c][0] = vfmaq_f32(acc[r][c][0], w.val[0], v[c][0]);
                acc[r][c][1] = vfmaq_f32(acc[r][c][1], w.val[1], v[c][1]);
            }
        }
    }
}

INLINE void tile(pleat__weight_type type, const int R, const int C, const pleat__matrix *w, uint32_t r0,
                 const void *const *x, float *const *y, bool add) {
    const int step_bytes = 32 * bytes_of(type);
    const uint8_t *p = w->data + r0 * w->row_bytes;
    const uint8_t *ahead = p + AHEAD_BYTES;
    float32x4_t acc[MAX_R][MAX_C][2];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) acc[r][c][0] = acc[r][c][1] = vdupq_n_f32(0);
    uint32_t col = 0;
    for (; col + 32 <= w->cols; col += 32, p += step_bytes, ahead += R * step_bytes) {
        for (int line = 0; line < R * step_bytes; line += LINE_BYTES) __builtin_prefetch(ahead + line);
        step(type, R, C, p, w->row_bytes, x, col, acc);
    }
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
            float sum = vaddvq_f32(vaddq_f32(acc[r][c][0], acc[r][c][1]));
            for (uint32_t i = 0; i < w->cols - col; i++)
                sum = __builtin_fmaf(load1(type, p + r * w->row_bytes, i), ((const float *)x[c])[col + i], sum);
            y[c][r0 + r] = add ? y[c][r0 + r] + sum : sum;
        }
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 2; n -= 2, x += 2, y += 2) band_of(tile, type, 4, 2, w, row_from, row_to, x, y, add);
    if (n == 1) band_of(tile, type, 8, 1, w, row_from, row_to, x, y, add);
}

INLINE void load(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to, float *out) {
    for (uint32_t r = row_from; r < row_to; r++, out += w->cols) {
        const uint8_t *p = w->data + r * w->row_bytes;
        uint32_t col = 0;
        for (; col + 8 <= w->cols; col += 8, p += 8 * bytes_of(type)) {
            const float32x4x2_t x = load8(type, p, 0);
            vst1q_f32(out + col, x.val[0]);
            vst1q_f32(out + col + 4, x.val[1]);
        }
        for (uint32_t i = 0; i < w->cols - col; i++) out[col + i] = load1(type, p, i);
    }
}

LINEAR_VARIANTS

void pleat__linear_fill_neon(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    (void)n_limbs; /* of floats */
    LINEAR_FILL(dsp);
    dsp->vector_rows = 16;
}
