/* SPDX-License-Identifier: MIT
 *
 * raw_avx2.c: a plane's eight bytes are broadcast, each to the eight codes whose bits it has; a mask leaves each code its
 * bit, and a comparison makes it all ones, which is -1.
 */
#include <immintrin.h>

#include "codec/internal.h"
#include "core/compiler.h"

/* Codes twice as large, and 1 more where the bits of a plane are set. */
INLINE __m256i append(__m256i codes, __m256i plane, __m256i which) {
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i mine = _mm256_and_si256(_mm256_shuffle_epi8(plane, which), bit);
    return _mm256_sub_epi8(_mm256_add_epi8(codes, codes), _mm256_cmpeq_epi8(mine, bit));
}

INLINE void decode(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    const __m256i first = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi8(4));
    for (uint32_t v = 0; v < n_vectors; v++, bytes += (size_t)8 * n_bits, out += 64) {
        __m256i low = _mm256_setzero_si256(), high = low;
        for (uint32_t p = n_bits; p-- > 0;) {
            const __m256i plane = _mm256_set1_epi64x((long long)pleat__load_u64(bytes + 8 * (size_t)p));
            low = append(low, plane, first);
            high = append(high, plane, second);
        }
        _mm256_storeu_si256((__m256i *)(void *)out, low);
        _mm256_storeu_si256((__m256i *)(void *)(out + 32), high);
    }
}

void pleat__raw_decode_avx2(const uint8_t *bytes, uint32_t n_bits, uint32_t n_vectors, uint8_t *out) {
    pleat__raw_decode_by(decode, bytes, n_bits, n_vectors, out);
}
