/* SPDX-License-Identifier: MIT
 *
 * packed_neon.c: linear.h's kernels for packed matrices without a dot product.  LD4 splits 16 rows by 4 columns into
 * four columns of 16 rows.  These are widened and multiplied by one lane of a register of a step row's 16-bit codes.
 */
#include "linear/arm/packed_neon.h"
#include "core/arm/lanes_neon.h"

/* Columns 4k .. 4k+3 from their low line and high line. */
INLINE void add_columns(pleat__weight_type type, const uint32_t C, uint32_t k, uint8x16x4_t low, uint8x16x4_t high,
                        const pleat__coded *const *x, int32x4_t sums[MAX_C][QUARTERS]) {
    int16x4_t m[MAX_C];
    for (uint32_t c = 0; c < C; c++) m[c] = vld1_s16(x[c]->codes.whole + 4 * k);
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const int8x16_t codes = signed_codes(type, k, low.val[j], high.val[j]);
        const int16x8_t first = vmovl_s8(vget_low_s8(codes)), last = vmovl_high_s8(codes);
        for (uint32_t c = 0; c < C; c++) {
            add_products(sums[c], first, m[c], j);
            add_products(sums[c] + 2, last, m[c], j);
        }
    }
}

INLINE void part_sums(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                      const part k_of, const uint8_t *p, uint32_t row, const pleat__coded *const *x,
                      int32x4_t sums[MAX_C][QUARTERS]) {
    (void)n_limbs, (void)width, (void)row; /* codes are whole; all four from 0 */
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t q = 0; q < QUARTERS; q++) sums[c][q] = vdupq_n_s32(0);
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        const uint8x16x4_t low = vld4q_u8(p + (size_t)LINE_BYTES * pleat__low_line(type, k));
        uint8x16x4_t high = low;
        if (pleat__weight_formats[type].high_bits) high = vld4q_u8(p + (size_t)LINE_BYTES * pleat__high_line(type, k));
        add_columns(type, C, k, low, high, x, sums);
    }
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, n_limbs, 2, QUARTERS, part_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, n_limbs, 1, QUARTERS, part_sums, w, row_from, row_to, x, y, add);
}

INLINE void store_codes(const uint32_t n_limbs, const int16x8_t codes[4], pleat__coded *out) {
    (void)n_limbs;
    for (uint32_t i = 0; i < 4; i++) vst1q_s16(out->codes.whole + 8 * i, codes[i]);
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_row_as(store_codes, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_packed_neon(pleat__linear_dsp *dsp, uint32_t n_limbs) { PACKED_FILL(dsp, n_limbs, 32); }
