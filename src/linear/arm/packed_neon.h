/* SPDX-License-Identifier: MIT
 *
 * packed_neon.h: what packed_neon.c and packed_dotprod.c have in common: codes and scales of a strip, a slice's sums to
 * f32, and the coding of rows.  They supply the integer sums of a part of a slice and the form of 32 codes, as functions
 * that are constants at each call.
 */
#ifndef PLEAT_LINEAR_ARM_PACKED_NEON_H
#define PLEAT_LINEAR_ARM_PACKED_NEON_H

#include <arm_neon.h>

#define VECTOR_BYTES 16

#include "linear/linear_variants.h"
#include "linear/packed_lines.h"

#define SLICE PLEAT__WEIGHT_BLOCK
#define ROWS PLEAT__STRIP_ROWS
#define LANES 4u
#define QUARTERS (ROWS / LANES)

/* How far before the bytes in use lines are asked for; for one vector, which reads weights from memory. */
#define AHEAD_BYTES 4096
#define LINE_BYTES PLEAT__LINE_BYTES

/* Most vectors of a band. */
#define MAX_C 4u

/* Columns 4*from .. 4*to - 1 of a slice. */
typedef struct part {
    uint32_t from, to;
} part;

/* Sums of rows row .. row + 4*width - 1 with C vectors, the block at x[c], on a part of the slice whose codes start at
 * p. */
typedef void (*part_sums_fn)(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                             const part k_of, const uint8_t *p, uint32_t row, const pleat__coded *const *x,
                             int32x4_t sums[MAX_C][QUARTERS]);

/* 32 codes in the variant's form. */
typedef void (*store_codes_fn)(const uint32_t n_limbs, const int16x8_t codes[4], pleat__coded *out);

/* ---- codes and scales -------------------------------------------------------------------------------------------- */

/* Signed codes of group k from its bytes of the low line and the high one. */
INLINE int8x16_t signed_codes(pleat__weight_type type, uint32_t k, uint8x16_t low, uint8x16_t high) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    if (f->low_bits == 8) return vreinterpretq_s8_u8(veorq_u8(low, vdupq_n_u8(0x80)));
    const uint8x16_t codes = (uint8x16_t)codes_from(type, k, (bytes_v)low, (bytes_v)high);
    return pleat__has_table(type) ? vqtbl1q_s8(vld1q_s8(f->table), codes) : vreinterpretq_s8_u8(codes);
}

/* What those codes stand too high adds to a sum of products with codes whose sum is `sum`. */
INLINE int32_t zeros_of(pleat__weight_type type, int32_t sum) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    if (f->low_bits == 8 || f->has_min || pleat__has_table(type)) return 0;
    return (int32_t)((uint32_t)sum << f->zero_shift);
}

INLINE float32x4_t halves_at(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vreinterpret_u16_u8(vld1_u8(p))));
}

/* Four of the bytes at p. */
INLINE int32x4_t signed_bytes_at(const uint8_t *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
}

/* What a power's exponent stands for: 2^(e-127)/2, where that of 0 has no exponent's bits. */
INLINE float32x4_t powers_at(const uint8_t *p) {
    const int32x4_t exponents = vandq_s32(signed_bytes_at(p), vdupq_n_s32(255));
    const int32x4_t bits = vmaxq_s32(vshlq_n_s32(exponents, 23), vdupq_n_s32(0x00400000));
    return vmulq_n_f32(vreinterpretq_f32_s32(bits), 0.5f);
}

/* Scales and minima of rows, four in each. */
typedef struct row_scales {
    float32x4_t scale[QUARTERS], min[QUARTERS];
} row_scales;

/* Scale i of a block whose record is there, of rows row .. row + 4*width - 1. */
INLINE row_scales scales_at(pleat__weight_type type, const uint32_t width, const uint8_t *record, uint32_t i,
                            uint32_t row) {
    const pleat__weight_format *f = &pleat__weight_formats[type];
    row_scales out;
    for (uint32_t q = 0; q < width; q++) {
        const uint32_t r = row + LANES * q;
        out.scale[q] = f->is_power ? powers_at(record + r) : halves_at(record + (size_t)2 * r);
        out.min[q] = f->has_min ? halves_at(record + (size_t)2 * (ROWS + r)) : vdupq_n_f32(0);
    }
    if (f->sub == PLEAT__SUB_NONE) return out;
    const pleat__sub_scales sub = pleat__sub_scales_at(type, record + pleat__sub_at(type), i);
    uint8_t scales[ROWS], minima[ROWS];
    memcpy(scales, &sub.scale, sizeof scales);
    memcpy(minima, &sub.min, sizeof minima);
    for (uint32_t q = 0; q < width; q++) {
        out.scale[q] = vmulq_f32(out.scale[q], vcvtq_f32_s32(signed_bytes_at(scales + row + LANES * q)));
        if (f->has_min) out.min[q] = vmulq_f32(out.min[q], vcvtq_f32_s32(signed_bytes_at(minima + row + LANES * q)));
    }
    return out;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Add the products of half h of a slice, or of all of it where it has one scale, which is i of its block. */
INLINE void add_half(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                     part_sums_fn part_sums, const uint32_t h, const uint8_t *p, const uint8_t *record, uint32_t i,
                     uint32_t row, const pleat__coded *const *x, float32x4_t acc[MAX_C][QUARTERS]) {
    const bool halves = pleat__weight_formats[type].has_halves, has_min = pleat__weight_formats[type].has_min;
    const part k_of = {halves ? 4 * h : 0, halves ? 4 * h + 4 : 8};
    int32x4_t sums[MAX_C][QUARTERS];
    part_sums(type, n_limbs, C, width, k_of, p, row, x, sums);
    const row_scales w = scales_at(type, width, record, i, row);
    for (uint32_t c = 0; c < C; c++) {
        const int32_t x_sum = halves ? x[c]->sum[h] : x[c]->total;
        const int32x4_t zeros = vdupq_n_s32(zeros_of(type, x_sum));
        for (uint32_t q = 0; q < width; q++) {
            const float32x4_t exact = vcvtq_f32_s32(vsubq_s32(sums[c][q], zeros));
            acc[c][q] = vfmaq_f32(acc[c][q], exact, vmulq_n_f32(w.scale[q], x[c]->scale));
            if (has_min) acc[c][q] = vfmaq_n_f32(acc[c][q], w.min[q], x[c]->scale * (float)x_sum);
        }
    }
}

/* Sums of a strip's rows from `row` on with C vectors. */
INLINE void strip(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                  part_sums_fn part_sums, const uint8_t *p, uint32_t n_slices, uint32_t row, const void *const *x,
                  float32x4_t acc[MAX_C][QUARTERS]) {
    const uint8_t *ahead = p + AHEAD_BYTES;
    const pleat__coded *xs[MAX_C];
    for (uint32_t c = 0; c < C; c++) xs[c] = x[c];
    for (uint32_t b = 0; b < n_slices; b++, ahead += pleat__slice_bytes(type)) {
        const uint8_t *codes = p + pleat__codes_at(type, b), *record = p + pleat__record_at(type, n_slices, b);
        const uint32_t s = b % pleat__slices_of(type);
        for (uint32_t line = 0; C == 1 && line < pleat__slice_bytes(type); line += LINE_BYTES)
            __builtin_prefetch(ahead + line);
        if (pleat__weight_formats[type].has_halves) {
            add_half(type, n_limbs, C, width, part_sums, 0, codes, record, 2 * s, row, xs, acc);
            add_half(type, n_limbs, C, width, part_sums, 1, codes, record, 2 * s + 1, row, xs, acc);
        } else {
            add_half(type, n_limbs, C, width, part_sums, 0, codes, record, s, row, xs, acc);
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
INLINE void band(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                 part_sums_fn part_sums, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                 const void *const *x, float *const *y, bool add) {
    for (uint32_t r = row_from; r < row_to; r += LANES * width) {
        const uint32_t row = r % ROWS;
        float32x4_t acc[MAX_C][QUARTERS];
        for (uint32_t c = 0; c < C; c++)
            for (uint32_t q = 0; q < width; q++) acc[c][q] = vdupq_n_f32(0);
        strip(type, n_limbs, C, width, part_sums, w->data + (r - row) * w->row_bytes, w->cols / SLICE, row, x, acc);
        for (uint32_t c = 0; c < C; c++)
            for (uint32_t q = 0; q < width && r + LANES * q < row_to; q++)
                store_rows(acc[c][q], row_to - r - LANES * q, y[c] + r + LANES * q, add);
    }
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale. */
INLINE void code_block(const uint32_t n_limbs, const float *x, pleat__coded *out, store_codes_fn store_codes) {
    const float code_max = pleat__code_max(n_limbs);
    float32x4_t v[SLICE / LANES];
    uint32x4_t max_bits = vdupq_n_u32(0);
    for (uint32_t i = 0; i < SLICE / LANES; i++) {
        v[i] = vld1q_f32(x + LANES * i);
        max_bits = vmaxq_u32(max_bits, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    const float max = vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(max_bits))), 0);
    const bool is_zero = max < PLEAT__CODED_ZERO;
    const float inverse = is_zero ? 0 : code_max / max;
    int16x8_t codes[4];
    int32x4_t sums[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (uint32_t i = 0; i < 4; i++) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], inverse));
        const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], inverse));
        sums[i / 2] = vaddq_s32(sums[i / 2], vaddq_s32(a, b));
        codes[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
    }
    store_codes(n_limbs, codes, out);
    out->scale = is_zero ? 0 : max / code_max;
    for (uint32_t h = 0; h < 2; h++) out->sum[h] = vaddvq_s32(sums[h]);
    out->total = (int32_t)((uint32_t)out->sum[0] + (uint32_t)out->sum[1]);
}

INLINE void code_row_as(store_codes_fn store_codes, const uint32_t n_limbs, const float *x, uint32_t cols,
                        pleat__coded *out) {
    for (uint32_t col = 0; col < cols; col += SLICE) code_block(n_limbs, x + col, out++, store_codes);
}

#endif
