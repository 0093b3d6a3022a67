/* SPDX-License-Identifier: MIT
 *
 * packed_neon.h: what packed_neon.c and packed_dotprod.c have in common: a block's sums to f32, and the coding of rows.
 * They supply the integer sums of a block and the form of 32 codes, as functions that are constants at each call.
 */
#ifndef PLEAT_LINEAR_ARM_PACKED_NEON_H
#define PLEAT_LINEAR_ARM_PACKED_NEON_H

#include <arm_neon.h>

#include "core/compiler.h"
#include "linear/linear_variants.h"

#define BLOCK PLEAT__WEIGHT_BLOCK
#define ROWS PLEAT__STRIP_ROWS
#define LANES 4u
#define QUARTERS (ROWS / LANES)

/* How far before the bytes in use lines are asked for; for one vector, which reads weights from memory. */
#define AHEAD_BYTES 4096
#define LINE_BYTES 64

/* Most vectors of a band. */
#define MAX_C 4u

/* Dot products of rows row .. row + 4*width - 1 of the strip's block whose codes start at p with those of C vectors,
 * the block at x[c]. */
typedef void (*block_sums_fn)(pleat__weight_type type, const uint32_t C, const uint32_t width, const uint8_t *p,
                              uint32_t row, const pleat__coded *const *x, int32x4_t sums[MAX_C][QUARTERS]);

/* 32 codes in the variant's form. */
typedef void (*store_codes_fn)(const int16x8_t codes[4], pleat__coded *out);

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Bytes of codes in a block of 16 rows. */
INLINE uint32_t code_bytes(pleat__weight_type type) { return type == PLEAT__W_Q8_0 ? 512 : 256; }

/* Sums of a strip's rows from `row` on with C vectors. */
INLINE void strip(pleat__weight_type type, const uint32_t C, const uint32_t width, block_sums_fn block_sums,
                  const uint8_t *p, uint32_t n_blocks, uint32_t row, const void *const *x,
                  float32x4_t acc[MAX_C][QUARTERS]) {
    const uint8_t *scales = p + (size_t)n_blocks * code_bytes(type) + 2 * row;
    const uint8_t *ahead = p + AHEAD_BYTES;
    const pleat__coded *xs[MAX_C];
    for (uint32_t c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t b = 0; b < n_blocks; b++, p += code_bytes(type), scales += 2 * ROWS) {
        for (uint32_t line = 0; C == 1 && line <= code_bytes(type); line += LINE_BYTES)
            __builtin_prefetch(ahead + line);
        ahead += code_bytes(type) + 2 * ROWS;
        int32x4_t sums[MAX_C][QUARTERS];
        block_sums(type, C, width, p, row, xs, sums);
        for (uint32_t q = 0; q < width; q++) {
            const uint16x4_t halves = vreinterpret_u16_u8(vld1_u8(scales + 2 * LANES * q));
            const float32x4_t w_scales = vcvt_f32_f16(vreinterpret_f16_u16(halves));
            for (uint32_t c = 0; c < C; c++)
                acc[c][q] = vfmaq_f32(acc[c][q], vcvtq_f32_s32(sums[c][q]), vmulq_n_f32(w_scales, xs[c]->scale));
        }
        for (uint32_t c = 0; c < C; c++) xs[c]++;
    }
}

/* The first `live` of four rows. */
INLINE void store_rows(float32x4_t acc, uint32_t live, float *to, bool add) {
    if (live >= LANES) {
        vst1q_f32(to, add ? vaddq_f32(vld1q_f32(to), acc) : acc);
        return;
    }
    float rows[LANES];
    vst1q_f32(rows, acc);
    for (uint32_t r = 0; r < live; r++) to[r] = add ? to[r] + rows[r] : rows[r];
}

/* All rows for C vectors, 4*width at a time. */
INLINE void band(pleat__weight_type type, const uint32_t C, const uint32_t width, block_sums_fn block_sums,
                 const pleat__matrix *w, uint32_t row_from, uint32_t row_to, const void *const *x, float *const *y,
                 bool add) {
    for (uint32_t r = row_from; r < row_to; r += LANES * width) {
        const uint32_t row = r % ROWS;
        float32x4_t acc[MAX_C][QUARTERS];
        for (uint32_t c = 0; c < C; c++)
            for (uint32_t q = 0; q < width; q++) acc[c][q] = vdupq_n_f32(0);
        strip(type, C, width, block_sums, w->data + (r - row) * w->row_bytes, w->cols / BLOCK, row, x, acc);
        for (uint32_t c = 0; c < C; c++)
            for (uint32_t q = 0; q < width && r + LANES * q < row_to; q++)
                store_rows(acc[c][q], row_to - r - LANES * q, y[c] + r + LANES * q, add);
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale. */
INLINE void code_block(const float *x, pleat__coded *out, store_codes_fn store_codes) {
    float32x4_t v[BLOCK / LANES];
    uint32x4_t max_bits = vdupq_n_u32(0);
    for (uint32_t i = 0; i < BLOCK / LANES; i++) {
        v[i] = vld1q_f32(x + LANES * i);
        max_bits = vmaxq_u32(max_bits, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    const float max = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(max_bits))), 0);
    const bool is_zero = max < PLEAT__CODED_ZERO;
    const float inverse = is_zero ? 0 : PLEAT__CODE_MAX / max;
    int16x8_t codes[4];
    int32x4_t sum = vdupq_n_s32(0);
    for (uint32_t i = 0; i < 4; i++) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], inverse));
        const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], inverse));
        sum = vaddq_s32(sum, vaddq_s32(a, b));
        codes[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
    }
    store_codes(codes, out);
    const uint32_t total = (uint32_t)vaddvq_s32(sum);
    out->scale = is_zero ? 0 : max / PLEAT__CODE_MAX;
    out->offset[0] = (int32_t)(0 - 128 * total);
    out->offset[1] = (int32_t)(0 - 8 * total);
}

INLINE void code_row(const float *x, uint32_t cols, pleat__coded *out, store_codes_fn store_codes) {
    for (uint32_t col = 0; col < cols; col += BLOCK) code_block(x + col, out++, store_codes);
}

#endif
