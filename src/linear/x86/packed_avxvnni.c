/* SPDX-License-Identifier: MIT
 *
 * packed_avxvnni.c: linear.h's kernels for packed matrices with AVX-VNNI: packed_avx512.c's in halves of 8 rows.
 */
#include "linear/x86/packed_256.h"

/* sums += products of a part's codes with a limb of each vector's. */
INLINE void add_limb(pleat__weight_type type, const int C, const part k_of, const uint8_t *p,
                     const int8_t *const *limbs, __m256i sums[MAX_C][2]) {
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const __m256i w = codes4(type, p, k, half);
            UNROLL
            for (int c = 0; c < C; c++)
                sums[c][half] = _mm256_dpbusd_avx_epi32(sums[c][half], w, broadcast4(limbs[c] + 4 * k));
        }
    }
}

INLINE void part_sums(pleat__weight_type type, const uint32_t n_limbs, const int C, const part k_of, const uint8_t *p,
                      const pleat__coded *const *x, uint32_t b, __m256i sums[MAX_C][2]) {
    const int8_t *high[MAX_C], *low[MAX_C];
    UNROLL
    for (int c = 0; c < C; c++) {
        high[c] = x[c][b].codes.limbs.high;
        low[c] = x[c][b].codes.limbs.low;
        sums[c][0] = sums[c][1] = _mm256_setzero_si256();
    }
    add_limb(type, C, k_of, p, high, sums);
    if (n_limbs == 1) return;
    UNROLL
    for (int c = 0; c < C; c++) {
        UNROLL
        for (int half = 0; half < 2; half++) sums[c][half] = _mm256_slli_epi32(sums[c][half], 8);
    }
    add_limb(type, C, k_of, p, low, sums);
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 3 && n != 4; n -= 3, x += 3, y += 3) band(type, n_limbs, 3, part_sums, w, row_from, row_to, x, y, add);
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, n_limbs, 2, part_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, n_limbs, 1, part_sums, w, row_from, row_to, x, y, add);
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_as(store_limbs, false, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_packed_avxvnni(pleat__linear_dsp *dsp, uint32_t n_limbs) {
    PACKED_FILL(dsp, n_limbs, UINT32_MAX);
}
