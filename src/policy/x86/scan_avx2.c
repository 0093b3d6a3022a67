/* SPDX-License-Identifier: MIT
 *
 * scan_avx2.c: the tests of scan.h for AVX2: the same answers as the scalar ones, NaN included.
 */
#include <immintrin.h>

#include "policy/scan.h"

static inline int block_may_have(const float *sums, const int32_t *positions, const pleat__scan_bound *bound) {
    __m256i found = _mm256_setzero_si256();
    for (uint32_t i = 0; i < PLEAT__SCAN_BLOCK; i += 8) {
        const __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)(positions + i));
        const __m256 m = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32((int32_t)bound->newest), at));
        const __m256 most = _mm256_mul_ps(_mm256_set1_ps(bound->limit), m);
        const __m256 small = _mm256_cmp_ps(_mm256_loadu_ps(sums + i), most, _CMP_LE_OQ);
        const __m256i old = _mm256_cmpgt_epi32(_mm256_set1_epi32(bound->end), at);
        found = _mm256_or_si256(found, _mm256_and_si256(_mm256_castps_si256(small), old));
    }
    return !_mm256_testz_si256(found, found);
}

uint32_t pleat__scan_below_avx2(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound) {
    while (from < page->n && !block_may_have(page->sums + from, page->positions + from, bound))
        from += PLEAT__SCAN_BLOCK;
    return from;
}

/* Bit i: positions[i] is wanted. */
static inline uint32_t equal_bits(const int32_t *positions, __m256i wanted) {
    const __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)positions);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(at, wanted)));
}

uint32_t pleat__scan_last_avx2(const int32_t *positions, uint32_t n, int32_t wanted) {
    const __m256i all_wanted = _mm256_set1_epi32(wanted);
    uint32_t used = (2u << (n + PLEAT__SCAN_BLOCK - 1) % PLEAT__SCAN_BLOCK) - 1; /* slots of the last block */
    for (uint32_t end = pleat__div_up_u32(n, PLEAT__SCAN_BLOCK) * PLEAT__SCAN_BLOCK; end > 0;
         end -= PLEAT__SCAN_BLOCK, used = UINT32_MAX) {
        const int32_t *block = positions + end - PLEAT__SCAN_BLOCK;
        const uint32_t bits = (equal_bits(block, all_wanted) | equal_bits(block + 8, all_wanted) << 8) & used;
        if (bits) return end - PLEAT__SCAN_BLOCK + 32 - (uint32_t)__builtin_clz(bits);
    }
    return 0;
}
