/* SPDX-License-Identifier: MIT
 *
 * packed_avx2.c: linear.h's kernels for packed matrices with AVX2.
 *
 * Of up to 6 bits, VPMADDUBSW makes pairs of 8 rows by 4 columns, which are added up in a run (packed_256.h) and widened
 * at its end; each limb apart.
 *
 * Codes of 8 bits become 16, even columns apart from odd ones, the step row's limbs one code of 16 bits again, and
 * products of pairs add to 32 (VPMADDWD).
 */
#include "linear/x86/packed_256.h"

/* ---- up to 6 bits ------------------------------------------------------------------------------------------------ */

/* Registers `from` .. `to` - 1 of 8 rows, in runs. */
INLINE void narrow_sums(pleat__weight_type type, const uint32_t n_limbs, const int C, const part k_of,
                        const uint32_t from, const uint32_t to, const uint8_t *p, const pleat__coded *const *x,
                        uint32_t b, __m256i sums[MAX_C][2]) {
    const uint32_t run = run_of(type);
    __m256i high[MAX_C][2], low[MAX_C][2], high_run[MAX_C][2], low_run[MAX_C][2];
    UNROLL
    for (uint32_t k = k_of.from; k < k_of.to; k++) {
        const uint32_t at = (k - k_of.from) % run;
        UNROLL
        for (uint32_t half = from; half < to; half++) {
            const __m256i w = codes4(type, p, k, half);
            UNROLL
            for (int c = 0; c < C; c++) {
                const __m256i h = _mm256_maddubs_epi16(w, broadcast4(x[c][b].codes.limbs.high + 4 * k));
                high_run[c][half] = at == 0 ? h : _mm256_add_epi16(high_run[c][half], h);
                IN_ORDER(high_run[c][half]);
                const bool is_last = at + 1 == run || k + 1 == k_of.to, is_first = k - k_of.from < run;
                if (is_last)
                    high[c][half] = add_run(is_first ? _mm256_setzero_si256() : high[c][half], high_run[c][half]);
                if (n_limbs == 1) continue;
                const __m256i l = _mm256_maddubs_epi16(w, broadcast4(x[c][b].codes.limbs.low + 4 * k));
                low_run[c][half] = at == 0 ? l : _mm256_add_epi16(low_run[c][half], l);
                IN_ORDER(low_run[c][half]);
                if (is_last) low[c][half] = add_run(is_first ? _mm256_setzero_si256() : low[c][half], low_run[c][half]);
            }
        }
    }
    UNROLL
    for (int c = 0; c < C; c++) {
        UNROLL
        for (uint32_t half = from; half < to; half++)
            sums[c][half] =
                n_limbs == 1 ? high[c][half] : _mm256_add_epi32(_mm256_slli_epi32(high[c][half], 8), low[c][half]);
    }
}

/* ---- 8 bits ------------------------------------------------------------------------------------------------------ */

/* A slice; types of 8 bits have no halves. */
INLINE void wide_sums(pleat__weight_type type, const uint32_t n_limbs, const int C, const uint8_t *p,
                      const pleat__coded *const *x, uint32_t b, __m256i sums[MAX_C][2]) {
    _Alignas(32) int16_t codes[MAX_C][SLICE];
    UNROLL
    for (int c = 0; c < C; c++) join_limbs(n_limbs, &x[c][b], codes[c]);
    UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const __m256i w = codes4(type, p, k, half);
            const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(w, 8);
            UNROLL
            for (int c = 0; c < C; c++) {
                const __m256i evens = _mm256_madd_epi16(even, broadcast_pair(codes[c] + 4 * k));
                const __m256i odds = _mm256_madd_epi16(odd, broadcast_pair(codes[c] + 4 * k + 2));
                sums[c][half] = k == 0 ? evens : _mm256_add_epi32(sums[c][half], evens);
                IN_ORDER(sums[c][half]);
                sums[c][half] = _mm256_add_epi32(sums[c][half], odds);
                IN_ORDER(sums[c][half]);
            }
        }
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

INLINE void part_sums(pleat__weight_type type, const uint32_t n_limbs, const int C, const part k_of, const uint8_t *p,
                      const pleat__coded *const *x, uint32_t b, __m256i sums[MAX_C][2]) {
    if (run_of(type) == 0) {
        wide_sums(type, n_limbs, C, p, x, b, sums);
        return;
    }
    if (C == 1 || run_of(type) == 8) { /* sums fit the registers */
        narrow_sums(type, n_limbs, C, k_of, 0, 2, p, x, b, sums);
        return;
    }
    narrow_sums(type, n_limbs, C, k_of, 0, 1, p, x, b, sums);
    narrow_sums(type, n_limbs, C, k_of, 1, 2, p, x, b, sums);
}

INLINE void mul(pleat__weight_type type, const uint32_t n_limbs, const pleat__matrix *w, uint32_t row_from,
                uint32_t row_to, const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, n_limbs, 2, part_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, n_limbs, 1, part_sums, w, row_from, row_to, x, y, add);
}

INLINE void code_row(const uint32_t n_limbs, const float *x, uint32_t cols, pleat__coded *out) {
    code_as(store_limbs, false, n_limbs, x, cols, out);
}

PACKED_VARIANTS

void pleat__linear_fill_packed_avx2(pleat__linear_dsp *dsp, uint32_t n_limbs) { PACKED_FILL(dsp, n_limbs, UINT32_MAX); }
