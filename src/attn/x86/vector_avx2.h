/* SPDX-License-Identifier: MIT
 *
 * vector_avx2.h: what decode and prompt attention both do with 256-bit registers: powers of two, reductions, masks.
 */
#ifndef PLEAT_ATTN_X86_VECTOR_AVX2_H
#define PLEAT_ATTN_X86_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "core/compiler.h"

/* 2^x for x <= 0: exactly 1 at 0, +0 below -126 (-infinity included), else within 8e-8 relative.  x is split into the
 * nearest integer, which goes to the exponent, and f in -0.5..0.5; the polynomial is a minimax fit of 2^f that is 1
 * at 0. */
INLINE __m256 exp2_256(__m256 x) {
    const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 f = _mm256_sub_ps(x, n);
    __m256 y = _mm256_set1_ps(0x1.41fbbap-13f);
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(0x1.5f3e54p-10f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(0x1.3b2d4cp-7f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(0x1.c6aee8p-5f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(0x1.ebfbdcp-3f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(0x1.62e430p-1f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ));
}

/* All ones in element j where bit j is set, j = 0..7. */
INLINE __m256 mask_of(uint64_t bits) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i here = _mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xFF)), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(here, bit));
}

/* Two 16-bit numbers in every 32-bit element. */
INLINE __m256i broadcast_pair(const int16_t *p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

INLINE float max_of(__m256 x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

INLINE float sum_of(__m256 x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

#endif
