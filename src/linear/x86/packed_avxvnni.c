/* SPDX-License-Identifier: MIT
 *
 * packed_avxvnni.c: linear.h's kernels for packed matrices with AVX-VNNI: packed_avx512.c's in halves of 8 rows.
 */
#include "linear/x86/packed_256.h"

/* Codes of a half, rows 8*half .. 8*half+7, for columns 4k..4k+3 of the block at p. */
INLINE __m256i codes4(pleat__weight_type type, const uint8_t *p, int k, int half) {
    if (type == PLEAT__W_Q8_0) return _mm256_loadu_si256((const __m256i *)(p + 64 * k + 32 * half));
    const __m256i both = _mm256_loadu_si256((const __m256i *)(p + 64 * (k / 2) + 32 * half));
    return _mm256_and_si256(k % 2 ? _mm256_srli_epi16(both, 4) : both, _mm256_set1_epi8(15));
}

INLINE __m256i broadcast4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}

/* sums += products of the block's codes with a limb of each vector's. */
INLINE void add_limb(pleat__weight_type type, const int C, const uint8_t *p, const int8_t *const *limbs,
                     __m256i sums[MAX_C][2]) {
    UNROLL
    for (int k = 0; k < 8; k++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            const __m256i w = codes4(type, p, k, half);
            UNROLL
            for (int c = 0; c < C; c++)
                sums[c][half] = _mm256_dpbusd_avx_epi32(sums[c][half], w, broadcast4(limbs[c] + 4 * k));
        }
    }
}

INLINE void block_sums(pleat__weight_type type, const int C, const uint8_t *p, const pleat__coded *const *x, uint32_t b,
                       __m256i sums[MAX_C][2]) {
    const int8_t *high[MAX_C], *low[MAX_C];
    UNROLL
    for (int c = 0; c < C; c++) {
        high[c] = x[c][b].codes.limbs.high;
        low[c] = x[c][b].codes.limbs.low;
        sums[c][0] = sums[c][1] = _mm256_setzero_si256();
    }
    add_limb(type, C, p, high, sums);
    UNROLL
    for (int c = 0; c < C; c++) {
        UNROLL
        for (int half = 0; half < 2; half++)
            sums[c][half] = _mm256_add_epi32(_mm256_slli_epi32(sums[c][half], 8), offset_of(type, &x[c][b]));
    }
    add_limb(type, C, p, low, sums);
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 3 && n != 4; n -= 3, x += 3, y += 3) band(type, 3, block_sums, w, row_from, row_to, x, y, add);
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, 2, block_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, 1, block_sums, w, row_from, row_to, x, y, add);
}

/* 32-bit lanes of four registers, which fit bytes, as 32 bytes. */
INLINE void store_bytes(const __m256i v[4], int8_t *out) {
    const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    _mm256_storeu_si256((__m256i *)out, _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

INLINE void store_codes(const __m256i codes[4], pleat__coded *out) {
    __m256i high[4], low[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        high[i] = _mm256_srai_epi32(_mm256_add_epi32(codes[i], _mm256_set1_epi32(128)), 8);
        low[i] = _mm256_sub_epi32(codes[i], _mm256_slli_epi32(high[i], 8));
    }
    store_bytes(high, out->codes.limbs.high);
    store_bytes(low, out->codes.limbs.low);
}

static void code(const float *x, uint32_t cols, pleat__coded *out) { code_row(x, cols, store_codes, out); }

PACKED_VARIANTS

void pleat__linear_fill_packed_avxvnni(pleat__linear_dsp *dsp) { PACKED_FILL(dsp, UINT32_MAX); }
