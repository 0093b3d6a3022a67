/* SPDX-License-Identifier: MIT
 *
 * fingerprint_avx2.c: fingerprint.h for AVX2: bits are counted by looking nibbles up.
 */
#include <immintrin.h>

#include "policy/fingerprint.h"

/* Bits of each 64-bit lane. */
static inline __m256i popcount(__m256i x) {
    const __m256i nibbles = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1,
                                             2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi8(15));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
    const __m256i bytes = _mm256_add_epi8(_mm256_shuffle_epi8(nibbles, low), _mm256_shuffle_epi8(nibbles, high));
    return _mm256_sad_epu8(bytes, _mm256_setzero_si256());
}

/* The first n of four words, the others 0. */
static inline __m256i load(const uint64_t *words, uint32_t n) {
    const __m256i used = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
    return _mm256_maskload_epi64((const long long *)(const void *)words, used);
}

static uint32_t distance_of(const uint64_t *fingerprint, const uint64_t *anchor, uint32_t n_words) {
    __m256i sum = _mm256_setzero_si256();
    for (uint32_t w = 0; w < n_words; w += 4)
        sum = _mm256_add_epi64(
            sum, popcount(_mm256_xor_si256(load(fingerprint + w, n_words - w), load(anchor + w, n_words - w))));
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return (uint32_t)(_mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1));
}

void pleat__fingerprint_distances_avx2(const uint64_t *fingerprints, uint32_t n, uint32_t n_words,
                                       const uint64_t *anchor, uint32_t *distances) {
    uint32_t i = 0;
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6), one = _mm256_set1_epi64x((long long)anchor[0]);
    for (; n_words == 1 && i + 4 <= n; i += 4) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(fingerprints + i));
        const __m256i four = _mm256_permutevar8x32_epi32(popcount(_mm256_xor_si256(x, one)), even);
        _mm_storeu_si128((__m128i *)(void *)(distances + i), _mm256_castsi256_si128(four));
    }
    for (; i < n; i++) distances[i] = distance_of(fingerprints + (size_t)i * n_words, anchor, n_words);
}

/* counts[b] -= bit b of the half word, in bytes. */
static inline __m256i count(__m256i counts, uint32_t half) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                            3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)half), spread), bits);
    return _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(x, bits));
}

/* Up to 255 words, `stride` apart: how many have each bit. */
static inline void count_block(const uint64_t *words, uint32_t n, uint32_t stride, __m256i counts[2]) {
    counts[0] = counts[1] = _mm256_setzero_si256();
    for (uint32_t i = 0; i < n; i++) {
        counts[0] = count(counts[0], (uint32_t)words[(size_t)i * stride]);
        counts[1] = count(counts[1], (uint32_t)(words[(size_t)i * stride] >> 32));
    }
}

/* Bytes that are not below `least`. */
static inline uint32_t reach(__m256i counts, uint32_t least) {
    const __m256i most = _mm256_max_epu8(counts, _mm256_set1_epi8((char)least));
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(most, counts));
}

static uint64_t majority_of(const uint64_t *words, uint32_t n, uint32_t stride) {
    const uint32_t least = n - n / 2;
    __m256i counts[2];
    if (n <= 255) {
        count_block(words, n, stride, counts);
        return (uint64_t)reach(counts[1], least) << 32 | reach(counts[0], least);
    }
    uint32_t sums[64] = {0};
    for (uint32_t done = 0; done < n; done += 255) {
        uint8_t bytes[64];
        count_block(words + (size_t)done * stride, pleat__min_u32(255, n - done), stride, counts);
        _mm256_storeu_si256((__m256i *)(void *)bytes, counts[0]);
        _mm256_storeu_si256((__m256i *)(void *)(bytes + 32), counts[1]);
        for (uint32_t b = 0; b < 64; b++) sums[b] += bytes[b];
    }
    uint64_t out = 0;
    for (uint32_t b = 0; b < 64; b++) out |= (uint64_t)(sums[b] >= least) << b;
    return out;
}

void pleat__fingerprint_majority_avx2(const uint64_t *fingerprints, uint32_t n, uint32_t n_words, uint64_t *out) {
    for (uint32_t w = 0; w < n_words; w++) out[w] = majority_of(fingerprints + w, n, n_words);
}
