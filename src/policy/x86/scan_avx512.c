/* SPDX-License-Identifier: MIT
 *
 * scan_avx512.c: the tests of scan.h for AVX-512: the same answers as the scalar ones, NaN included.
 */
#include <immintrin.h>

#include "policy/scan.h"

uint32_t pleat__scan_below_avx512(const pleat__tracked *page, uint32_t from, const pleat__scan_bound *bound) {
    const __m512i newest = _mm512_set1_epi32((int32_t)bound->newest), end = _mm512_set1_epi32(bound->end);
    const __m512 limit = _mm512_set1_ps(bound->limit);
    for (; from < page->n; from += PLEAT__SCAN_BLOCK) {
        const __m512i at = _mm512_loadu_si512(page->positions + from);
        const __m512 most = _mm512_mul_ps(limit, _mm512_cvtepi32_ps(_mm512_sub_epi32(newest, at)));
        const __mmask16 old = _mm512_cmplt_epi32_mask(at, end);
        if (_mm512_mask_cmp_ps_mask(old, _mm512_loadu_ps(page->sums + from), most, _CMP_LE_OQ)) return from;
    }
    return from;
}

uint32_t pleat__scan_last_avx512(const int32_t *positions, uint32_t n, int32_t wanted) {
    const __m512i all_wanted = _mm512_set1_epi32(wanted);
    uint32_t used = (2u << (n + PLEAT__SCAN_BLOCK - 1) % PLEAT__SCAN_BLOCK) - 1; /* slots of the last block */
    for (uint32_t end = pleat__div_up_u32(n, PLEAT__SCAN_BLOCK) * PLEAT__SCAN_BLOCK; end > 0;
         end -= PLEAT__SCAN_BLOCK, used = UINT32_MAX) {
        const uint32_t first = end - PLEAT__SCAN_BLOCK;
        const uint32_t bits = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(positions + first), all_wanted) & used;
        if (bits) return first + 32 - (uint32_t)__builtin_clz(bits);
    }
    return 0;
}
