/* SPDX-License-Identifier: MIT
 *
 * blocks_avx2.h: decode attention over compressed blocks with 256-bit registers, for the file compiled with AVX2 and
 * the one with AVX-VNNI: only dot_pairs() differs.
 *
 *     blocks_avx2.c             steps folded into queries and weights, which become 16-bit numbers; softmax; products
 *     blocks_avxvnni.c          products by VNNI
 *     blocks_products_avx2.h    products with codes
 *     blocks_packs_avx2.h       products with packs
 *     blocks_planes_avx2.h      products with planes of two bits
 *
 * Factors x of a row of columns are whole numbers p of a unit of their own, the row's max |x| / top:
 *
 *     x ~= unit * p      |p| <= top = 32639, or less where sums of p * code would not fit 31 bits
 *
 * Codes are widened to 16 bits, columns 0 and 2 of a vector by an AND, 1 and 3 by a shift, and multiplied in pairs.  So
 * the numbers of each four columns stand in the order 0, 2, 1, 3, but for values' packs and planes (number_order).
 * Elements are rows, and nothing is summed across a register.  Sums are exact: AVX-VNNI gives the bits of AVX2.  The rounding of p is
 * what pages of integer formats have with AVX2 too (decode.h): the error in norm stays below 1e-4 in place of 1e-6.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_AVX2_H
#define PLEAT_ATTN_X86_BLOCKS_AVX2_H

#include "attn/blocks_walk.h"
#include "attn/x86/vector_avx2.h"

#define HEADS PLEAT__BLOCKS_HEADS
#define ROWS 16u /* of a slice */
#define VECTOR 64u

/* Weights are cut in parts of so many tokens, each in units of its own, as with AVX-512. */
#define PART_TOKENS 256u
#define MAX_PARTS PLEAT__STREAMS /* a block has 256 tokens at most */

/* Sums of a slice's rows, by head. */
typedef struct pleat__blocks_sums_avx2 {
    _Alignas(32) int32_t of[HEADS][ROWS];
} pleat__blocks_sums_avx2;

/* Steps of pleat__blocks_steps. */
void pleat__blocks_begin_avx2(pleat__blocks_walk *w);
void pleat__blocks_keys_begin_avx2(pleat__blocks_walk *w);
void pleat__blocks_softmax_avx2(pleat__blocks_walk *w);
void pleat__blocks_values_begin_avx2(pleat__blocks_walk *w);
void pleat__blocks_end_avx2(pleat__blocks_walk *w);

/* p of a head's columns, d of a key and a row of tokens of the values. */
static inline int16_t *pleat__key_numbers(const pleat__blocks_walk *w, uint32_t block, uint32_t head) {
    const uint32_t of_block = w->format->by_channel ? block * w->heads : 0;
    return (int16_t *)w->key_factors + (size_t)(of_block + head) * w->format->head_dim;
}
static inline int16_t *pleat__value_numbers(const pleat__blocks_walk *w, uint32_t unit, uint32_t head) {
    return (int16_t *)pleat__blocks_value_factors(w, unit) + (size_t)head * pleat__blocks_row(w->format);
}

/* sum + codes * pair, two products to an element.  Not intrinsics: decode_integer_avx2.h says why. */
INLINE __m256i dot_pairs(__m256i sum, __m256i codes, __m256i pair) {
#ifdef __AVXVNNI__
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(pair));
#else
    __m256i product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(codes), "x"(pair));
#endif
    return sum;
}

#endif
