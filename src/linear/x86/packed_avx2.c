/* SPDX-License-Identifier: MIT
 *
 * packed_avx2.c: linear.h's kernels for packed matrices with AVX2.
 *
 * Codes of weights become 16 bits, whole codes of a step row are 16 bits, and products of pairs add to 32.  A strip of
 * 16 rows by 4 columns is four registers of [4 rows][4 columns], with sums [4 rows][2]:
 *
 *     for each block of 32 columns:   sums of quarter q += pairs of (codes of quarter q) * (4 codes, broadcast)
 *                                     halves of 8 rows: pairs added, and the offset
 *                                     acc += (float)sums * (weights' scales * row's scale)
 */
#include "linear/x86/packed_256.h"

/* Codes of quarter q, rows 4q..4q+3, for columns 4k..4k+3 of the block at p. */
INLINE __m256i codes4(pleat__weight_type type, const uint8_t *p, int k, int q) {
    if (type == PLEAT__W_Q8_0) return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p + 64 * k + 16 * q)));
    const __m128i both = _mm_loadu_si128((const __m128i *)(p + 64 * (k / 2) + 16 * q));
    return _mm256_cvtepu8_epi16(_mm_and_si128(k % 2 ? _mm_srli_epi16(both, 4) : both, _mm_set1_epi8(15)));
}

INLINE __m256i broadcast4(const int16_t *p) {
    int64_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi64x(four);
}

/* Rows 0..7 of sums [4 rows][2] of rows 0..3 and 4..7. */
INLINE __m256i add_pairs(__m256i a, __m256i b) { return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xD8); }

INLINE void block_sums(pleat__weight_type type, const int C, const uint8_t *p, const pleat__coded *const *x, uint32_t b,
                       __m256i sums[MAX_C][2]) {
    __m256i pairs[MAX_C][4];
    UNROLL
    for (int k = 0; k < 8; k++) {
        UNROLL
        for (int q = 0; q < 4; q++) {
            const __m256i w = codes4(type, p, k, q);
            UNROLL
            for (int c = 0; c < C; c++) {
                const __m256i products = _mm256_madd_epi16(w, broadcast4(x[c][b].codes.whole + 4 * k));
                pairs[c][q] = k == 0 ? products : _mm256_add_epi32(pairs[c][q], products);
            }
        }
    }
    UNROLL
    for (int c = 0; c < C; c++) {
        UNROLL
        for (int half = 0; half < 2; half++)
            sums[c][half] =
                _mm256_add_epi32(add_pairs(pairs[c][2 * half], pairs[c][2 * half + 1]), offset_of(type, &x[c][b]));
    }
}

INLINE void mul(pleat__weight_type type, const pleat__matrix *w, uint32_t row_from, uint32_t row_to,
                const void *const *x, float *const *y, uint32_t n, bool add) {
    for (; n >= 2; n -= 2, x += 2, y += 2) band(type, 2, block_sums, w, row_from, row_to, x, y, add);
    if (n == 1) band(type, 1, block_sums, w, row_from, row_to, x, y, add);
}

INLINE void store_codes(const __m256i codes[4], pleat__coded *out) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i packed = _mm256_packs_epi32(codes[2 * i], codes[2 * i + 1]);
        _mm256_storeu_si256((__m256i *)out->codes.whole + i, _mm256_permute4x64_epi64(packed, 0xD8));
    }
}

static void code(const float *x, uint32_t cols, pleat__coded *out) { code_row(x, cols, store_codes, out); }

PACKED_VARIANTS

void pleat__linear_fill_packed_avx2(pleat__linear_dsp *dsp) { PACKED_FILL(dsp, 32); }
