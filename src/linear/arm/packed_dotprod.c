/* SPDX-License-Identifier: MIT
 *
 * packed_dotprod.c: linear.h's kernels for packed matrices by SDOT, four 8-bit products to each of four rows.
 *
 * A step row's codes are two limbs, 16 of each in a register, and an instruction takes the four it needs from any
 * quarter of it.  Four vectors take half a strip at once: 16 integer sums, 8 of floats.
 */
#include "core/arm/lanes_neon.h"
#include "linear/arm/packed_neon.h"

/* Codes of columns 4k .. 4k+3, rows 4q .. 4q+3 of those whose lines start at p. */
INLINE int8x16_t codes4(pleat__weight_type type, const uint8_t *p, uint32_t k, uint32_t q) {
    const uint8x16_t low = vld1q_u8(p + (size_t)LINE_BYTES * pleat__low_line(type, k) + (size_t)16 * q);
    uint8x16_t high = low;
    if (pleat__weight_formats[type].high_bits)
        high = vld1q_u8(p + (size_t)LINE_BYTES * pleat__high_line(type, k) + (size_t)16 * q);
    return signed_codes(type, k, low, high);
}

INLINE void part_sums(pleat__weight_type type, const uint32_t n_limbs, const uint32_t C, const uint32_t width,
                      const part k_of, const uint8_t *p, uint32_t row, const pleat__coded *const *x,
                      int32x4_t sums[MAX_C][QUARTERS]) {
    int32x4_t high[MAX_C][QUARTERS];
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t q = 0; q < width; q++) sums[c][q] = high[c][q] = vdupq_n_s32(0);
    p += (size_t)4 * row;
    for (uint32_t half = k_of.from / 4; half < k_of.to / 4; half++) { /* of 16 columns */
        int8x16_t a[MAX_C], b[MAX_C];
        for (uint32_t c = 0; c < C; c++) {
            a[c] = vld1q_s8(x[c]->codes.limbs.high + 16 * half);
            if (n_limbs == 2) b[c] = vld1q_s8(x[c]->codes.limbs.low + 16 * half);
        }
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            for (uint32_t q = 0; q < width; q++) {
                const int8x16_t w = codes4(type, p, 4 * half + k, q);
                for (uint32_t c = 0; c < C; c++) {
                    high[c][q] = dot_lane(high[c][q], w, a[c], k);
                    if (n_limbs == 2) sums[c][q] = dot_lane(sums[c][q], w, b[c], k);
                }
            }
        }
    }
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t q = 0; q < width; q++)
            sums[c][q] = n_limbs == 1 ? high[c][q] : vaddq_s32(sums[c][q], vshlq_n_s32(high[c][q], 8));
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 4; n -= 4, x += 4, y += 4) band(type, n_limbs, 4, 2, part_sums, w, row_from, row_to, x, y, add);
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, n_limbs, 2, QUARTERS, part_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, n_limbs, 1, QUARTERS, part_sums, w, row_from, row_to, x, y, add);
}

/* 256*high + low, low in -128..127; of one limb high alone. */
INLINE void store_codes(const uint32_t n_limbs, const int16x8_t codes[4], pleat__coded *out) {
    for (uint32_t i = 0; i < 4; i++) {
        vst1_s8(out->codes.limbs.high + 8 * i, n_limbs == 1 ? vmovn_s16(codes[i]) : vrshrn_n_s16(codes[i], 8));
        if (n_limbs == 1) continue;
        vst1_s8(out->codes.limbs.low + 8 * i, vmovn_s16(codes[i]));
    }
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_row_as(store_codes, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_packed_dotprod(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    PACKED_FILL(dsp, n_limbs, UINT32_MAX);
}
