/* SPDX-License-Identifier: MIT
 *
 * fingerprint_avx512.c: fingerprint.h for AVX-512 F and BW, which have no instruction that counts bits; nibbles are
 * looked up.  A fingerprint's word is the mask under which its 64 counters go up by one.
 */
#include <immintrin.h>

#include "policy/fingerprint.h"

/* Bits of each 64-bit lane. */
static inline __m512i popcount(__m512i x) {
    const __m512i nibbles = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i low = _mm512_and_si512(x, _mm512_set1_epi8(15));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
    const __m512i bytes = _mm512_add_epi8(_mm512_shuffle_epi8(nibbles, low), _mm512_shuffle_epi8(nibbles, high));
    return _mm512_sad_epu8(bytes, _mm512_setzero_si512());
}

/* Mask of the first n of eight. */
static inline __mmask8 first(uint32_t n) { return n >= 8 ? 0xff : (__mmask8)((1u << n) - 1); }

static uint32_t distance_of(const uint64_t *fingerprint, const uint64_t *anchor, uint32_t n_words) {
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t w = 0; w < n_words; w += 8) {
        const __mmask8 used = first(n_words - w);
        const __m512i x = _mm512_maskz_loadu_epi64(used, fingerprint + w),
                      y = _mm512_maskz_loadu_epi64(used, anchor + w);
        sum = _mm512_add_epi64(sum, popcount(_mm512_xor_si512(x, y)));
    }
    return (uint32_t)_mm512_reduce_add_epi64(sum);
}

void pleat__fingerprint_distances_avx512(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                         const uint64_t *anchor, uint32_t *distances) {
    const __m512i one = _mm512_set1_epi64((long long)anchor[0]);
    for (uint32_t i = 0; n_words == 1 && i < n; i += 8) {
        const __mmask8 used = first(n - i);
        const __m512i x = _mm512_maskz_loadu_epi64(used, fingerprints + i);
        _mm512_mask_cvtepi64_storeu_epi32(distances + i, used, popcount(_mm512_xor_si512(x, one)));
    }
    for (uint32_t i = 0; n_words > 1 && i < n; i++)
        distances[i] = distance_of(fingerprints + (size_t)i * n_words, anchor, n_words);
}

/* Up to 255 words, `stride` apart: how many have each bit. */
static inline __m512i count_block(const uint64_t *words, uint32_t n, uint32_t stride) {
    __m512i counts = _mm512_setzero_si512();
    for (uint32_t i = 0; i < n; i++)
        counts = _mm512_mask_add_epi8(counts, words[(size_t)i * stride], counts, _mm512_set1_epi8(1));
    return counts;
}

static uint64_t majority_of(const uint64_t *words, uint32_t n, uint32_t stride) {
    const uint32_t least = n - n / 2;
    if (n <= 255) return _mm512_cmpge_epu8_mask(count_block(words, n, stride), _mm512_set1_epi8((char)least));
    uint32_t sums[64] = {0};
    for (uint32_t done = 0; done < n; done += 255) {
        uint8_t bytes[64];
        _mm512_storeu_si512(bytes, count_block(words + (size_t)done * stride, pleat__min_u32(255, n - done), stride));
        for (uint32_t b = 0; b < 64; b++) sums[b] += bytes[b];
    }
    uint64_t out = 0;
    for (uint32_t b = 0; b < 64; b++) out |= (uint64_t)(sums[b] >= least) << b;
    return out;
}

void pleat__fingerprint_majority_avx512(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out) {
    for (uint32_t w = 0; w < n_words; w++) out[w] = majority_of(fingerprints + w, n, n_words);
}
