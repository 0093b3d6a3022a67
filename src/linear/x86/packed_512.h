/* SPDX-License-Identifier: MIT
 *
 * packed_512.h: what packed_avx512.c and packed_many_avx512.c have in common: the coding of rows.  They say in which form
 * codes are stored.
 */
#ifndef PLEAT_LINEAR_X86_PACKED_512_H
#define PLEAT_LINEAR_X86_PACKED_512_H

#define VECTOR_BYTES 64

#include "linear/linear_variants.h"
#include "linear/x86/packed_codes.h"

/* The largest lane in every lane. */
INLINE __m512i max_in_all(__m512i v) {
    v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0x4E));
    v = _mm512_max_epu32(v, _mm512_shuffle_i32x4(v, v, 0xB1));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4E));
    return _mm512_max_epu32(v, _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xB1));
}

/* The sum of 32-bit elements modulo 2^32: what infinite activations were coded to may pass int. */
INLINE uint32_t wrapping_sum(__m512i x) {
    const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

/* Store the codes of 16 activations, those from `at` on of a block. */
typedef void (*store_codes_fn)(__m512i codes, uint32_t at, pleat__coded *out);

/* One limb. */
INLINE void store_one_limb(__m512i codes, uint32_t at, pleat__coded *out) {
    _mm_storeu_si128((__m128i *)(out->codes.one_limb.high + at), _mm512_cvtepi32_epi8(codes));
}

/* As integers, infinity and NaN are above all other magnitudes: a block with one of them gets no finite scale.
 * store_codes and is_many are of two limbs. */
INLINE void code_as(store_codes_fn store_codes, const bool is_many, const uint32_t n_limbs, const float *x,
                    uint32_t cols, pleat__coded *out) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (; cols > 0; cols -= SLICE, x += SLICE, out++) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
        const __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
        const __m512 max = _mm512_castsi512_ps(max_in_all(_mm512_max_epu32(m0, m1)));
        const __mmask16 live = _mm512_cmp_ps_mask(max, _mm512_set1_ps(PLEAT__CODED_ZERO), _CMP_NLT_UQ);
        const __m512 code_max = _mm512_set1_ps(pleat__code_max(n_limbs));
        const __m512 inverse = _mm512_maskz_div_ps(live, code_max, max);
        const __m512i c0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
        const __m512i c1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
        out->scale = _mm512_cvtss_f32(_mm512_maskz_div_ps(live, max, code_max));
        if (n_limbs == 1) {
            store_one_limb(c0, 0, out);
            store_one_limb(c1, 16, out);
            put_all_sums(wrapping_sum(c0), wrapping_sum(c1), out);
        } else {
            store_codes(c0, 0, out);
            store_codes(c1, 16, out);
            put_sums(wrapping_sum(c0), wrapping_sum(c1), is_many, out);
        }
    }
}

#endif
