/* SPDX-License-Identifier: MIT
 *
 * blocks_dots_avx512.h: VNNI's dot product of four bytes, of a vector of codes and the limbs of up to four heads.
 *
 * A vector of codes serves all limbs and heads; a limb's four bytes are broadcast from memory.  Elements are rows, so
 * nothing is summed across a register, and all sums of a slice stay in registers.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_DOTS_AVX512_H
#define PLEAT_ATTN_X86_BLOCKS_DOTS_AVX512_H

#include <string.h>

#include "attn/x86/blocks_avx512.h"

/* Few sums would wait for each other: so many vectors in turn have sums of their own. */
#define SPLITS(heads) ((heads) == 1 ? 4u : (heads) == 2 ? 2u : 1u)

/* sum += u8 codes * four s8 limbs at p, four products to an element.  Not the intrinsic: decode_avx512.h says why. */
INLINE __m512i dot_four_at(__m512i sum, __m512i codes, const int8_t *p) {
    typedef struct {
        int8_t limbs[4];
    } four;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const four *)p));
    return sum;
}

/* Add a vector's products with the limbs at p to sum[limb * heads + h]. */
INLINE void add_vector(uint32_t heads, __m512i codes, const int8_t *p, __m512i *sum) {
    UNROLL
    for (uint32_t i = 0; i < LIMBS * heads; i++)
        sum[i] = dot_four_at(sum[i], codes, p + (i / heads * HEADS + i % heads) * COLUMNS);
}

/* Sums of `splits` vectors in turn, put together. */
INLINE void store_sums(uint32_t heads, uint32_t splits, const __m512i *sum, pleat__blocks_sums *sums) {
    const uint32_t rows = LIMBS * heads;
    UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        __m512i all = sum[i];
        UNROLL
        for (uint32_t s = 1; s < splits; s++) all = _mm512_add_epi32(all, sum[s * rows + i]);
        _mm512_store_si512(sums->of[i / heads * HEADS + i % heads], all);
    }
}

#endif
