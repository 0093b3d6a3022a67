/* SPDX-License-Identifier: MIT
 *
 * decode_avx2.h: decode_avx512.h with 256-bit registers and without the 8-bit dot product.
 *
 * Codes are widened to 16 bits, two of the four bytes of a 32-bit element at a time, and multiplied in pairs
 * (vpmaddwd): bytes 0 and 2 by an AND, bytes 1 and 3 by a shift.  So queries and weights are 16-bit numbers, and each
 * four of them stand in the order 0, 2, 1, 3.
 */
#ifndef PLEAT_ATTN_X86_DECODE_AVX2_H
#define PLEAT_ATTN_X86_DECODE_AVX2_H

#include "attn/decode.h"
#include "attn/x86/vector_avx2.h"

#define TILES PLEAT__DECODE_TILES
#define HEADS PLEAT__DECODE_HEADS

INLINE __m256 load_f16(const void *p) { return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p)); }

/* Two 16-bit numbers in every 32-bit element. */
INLINE __m256i broadcast_pair(const int16_t *p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* sum += codes * pair.  The empty asm keeps gcc 12 from making all products first, which spills them. */
INLINE __m256i add_pairs(__m256i sum, __m256i codes, __m256i pair) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes, pair));
    __asm__("" : "+x"(sum));
    return sum;
}

/* The codes in plane `plane` of 16-bit words: 8/bits planes of low bytes, then as many of high bytes. */
INLINE __m256i code_plane(__m256i words, uint32_t bits, uint32_t plane) {
    const uint32_t planes = 16 / bits;
    const __m256i low = plane == 0 ? words : _mm256_srli_epi16(words, (int)(plane * bits));
    return plane == planes - 1 ? low : _mm256_and_si256(low, _mm256_set1_epi16((short)((1 << bits) - 1)));
}

/* Where the pair that meets a plane stands among its 4*8/bits numbers in the order 0, 2, 1, 3. */
INLINE uint32_t pair_of_plane(uint32_t bits, uint32_t plane) {
    return 4 * (plane % (8 / bits)) + 2 * (plane / (8 / bits));
}

/* As pleat__keys_avx512_fn. */
typedef void (*pleat__keys_avx2_fn)(const pleat__attn_query *query, uint32_t head, const pleat__tile_group *group,
                                    float (*out)[TILES][PLEAT__TILE]);

/* As pleat__weights_avx512. */
typedef struct pleat__weights_avx2 {
    union {
        float f32[HEADS][TILES][PLEAT__TILE];
        int16_t fixed[HEADS][TILES][PLEAT__TILE]; /* each four in the order 0, 2, 1, 3 */
    } u;
    int32_t sum[HEADS]; /* of fixed */
    float step[HEADS];
    float rescale[HEADS];
} __attribute__((aligned(64))) pleat__weights_avx2;

/* As pleat__values_avx512_fn. */
typedef void (*pleat__values_avx2_fn)(const pleat__weights_avx2 *w, const pleat__tile_group *group, uint32_t head_dim,
                                      float *o);

/* By log2 of the bits (1..5) and the heads of a block (1, 2, 4); NULL where there is none. */
extern const pleat__keys_avx2_fn pleat__keys_avx2[6][HEADS + 1];
extern const pleat__values_avx2_fn pleat__values_avx2[6][HEADS + 1];

#endif
