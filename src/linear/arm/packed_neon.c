/* SPDX-License-Identifier: MIT
 *
 * packed_neon.c: linear.h's kernels for packed matrices without a dot product.  LD4 splits 16 rows by 4 columns into
 * four columns of 16 rows.  These are widened and multiplied by one lane of a register of a step row's 16-bit codes.
 */
#include "linear/arm/packed_neon.h"
#include "core/arm/lanes_neon.h"

/* Columns 4k .. 4k+3, whose codes are `bytes`. */
INLINE void add_columns(const uint32_t C, uint8x16x4_t bytes, uint32_t k, const pleat__coded *const *x,
                        int32x4_t sums[MAX_C][QUARTERS]) {
    int16x4_t m[MAX_C];
    for (uint32_t c = 0; c < C; c++) m[c] = vld1_s16(x[c]->codes.whole + 4 * k);
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes.val[j])));
        const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(bytes.val[j]));
        for (uint32_t c = 0; c < C; c++) {
            add_products(sums[c], low, m[c], j);
            add_products(sums[c] + 2, high, m[c], j);
        }
    }
}

INLINE void block_sums(pleat__weight_type type, const uint32_t C, const uint32_t width, const uint8_t *p, uint32_t row,
                       const pleat__coded *const *x, int32x4_t sums[MAX_C][QUARTERS]) {
    (void)width, (void)row; /* all four from 0 */
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t q = 0; q < QUARTERS; q++) sums[c][q] = vdupq_n_s32(x[c]->offset[type == PLEAT__W_Q4_0]);
    if (type == PLEAT__W_Q8_0) {
        for (uint32_t k = 0; k < 8; k++) add_columns(C, vld4q_u8(p + 64 * k), k, x, sums);
        return;
    }
    for (uint32_t k = 0; k < 8; k += 2) {
        const uint8x16x4_t both = vld4q_u8(p + 32 * k);
        uint8x16x4_t low, high;
        for (uint32_t j = 0; j < 4; j++) {
            low.val[j] = vandq_u8(both.val[j], vdupq_n_u8(15));
            high.val[j] = vshrq_n_u8(both.val[j], 4);
        }
        add_columns(C, low, k, x, sums);
        add_columns(C, high, k + 1, x, sums);
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, 2, QUARTERS, block_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, 1, QUARTERS, block_sums, w, row_from, row_to, x, y, add);
}

INLINE void store_codes(const int16x8_t codes[4], pleat__coded *out) {
    for (uint32_t i = 0; i < 4; i++) vst1q_s16(out->codes.whole + 8 * i, codes[i]);
}

static void code(const float *x, uint32_t cols, pleat__coded *out) { code_row(x, cols, out, store_codes); }

PACKED_VARIANTS

void pleat__linear_fill_packed_neon(pleat__linear_dsp *dsp) { PACKED_FILL(dsp, 32); }
