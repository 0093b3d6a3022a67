/* SPDX-License-Identifier: MIT
 *
 * blocks_avx512.h: what the AVX-512 variants of blocks.h share.  They differ in how they multiply codes with limbs.
 *
 *     blocks_avx512.c        steps folded into queries and weights, cut into limbs; softmax
 *     blocks_vnni_avx512.c   products by VNNI
 *     blocks_vbmi2.c         the same, of two bits from their planes
 *     blocks_amx.c           products by AMX
 *
 * Factors x of a row of columns are whole numbers of a unit of their own, max |x| / 32639, cut into limbs:
 *
 *     x ~= unit * (256*l1 + l0)     limbs in -128..127
 *
 * and lie as four heads' limbs of 64 columns: [columns / 64][limb][4 heads][64], 8 rows of 64 bytes at a time, which
 * is a tile.  Behind the last column they are 0, whatever codes they meet.  Sums of products with codes are exact.
 */
#ifndef PLEAT_ATTN_X86_BLOCKS_AVX512_H
#define PLEAT_ATTN_X86_BLOCKS_AVX512_H

#include "attn/blocks_walk.h"
#include "attn/x86/vector_avx512.h"

#define HEADS PLEAT__BLOCKS_HEADS
#define COLUMNS PLEAT__BLOCKS_COLUMNS
#define LIMBS 2u
#define LIMB_ROWS (LIMBS * HEADS)
#define LIMB_BYTES ((size_t)LIMB_ROWS * COLUMNS) /* of 64 columns and four heads */
#define ROWS 16u                                 /* of a slice */
#define VECTOR 64u

/* Weights are cut in parts of so many tokens, each in units of its own: with more tokens the rounding of many small
 * ones would show.  With 512 in one go AMX was slower, too, by 14 % of a call (d 128, T 128; Granite Rapids Xeon,
 * 2026-11). */
#define PART_TOKENS 256u
#define PART_LIMB_BYTES (PART_TOKENS / COLUMNS * LIMB_BYTES)
#define MAX_PARTS PLEAT__STREAMS /* a block has 256 tokens at most */

/* Sums of a slice: of limb l and head h, 16 rows at [l * HEADS + h]. */
typedef struct pleat__blocks_sums {
    _Alignas(64) int32_t of[LIMB_ROWS][ROWS];
} pleat__blocks_sums;

/* Steps of pleat__blocks_steps. */
void pleat__blocks_begin_avx512(pleat__blocks_walk *w);
void pleat__blocks_keys_begin_avx512(pleat__blocks_walk *w);
void pleat__blocks_softmax_avx512(pleat__blocks_walk *w);
void pleat__blocks_values_begin_avx512(pleat__blocks_walk *w);

/* Where limbs of heads [head, head + HEADS) lie, head a multiple of HEADS, ... */
static inline int8_t *pleat__key_limbs(const pleat__blocks_walk *w, uint32_t block, uint32_t head) {
    const size_t four_heads = pleat__blocks_padded(w->format->head_dim) / COLUMNS * LIMB_BYTES;
    const size_t of_block = w->format->by_channel ? (size_t)block * (w->heads / HEADS) : 0;
    return (int8_t *)w->key_factors + (of_block + head / HEADS) * four_heads;
}
static inline int8_t *pleat__value_limbs(const pleat__blocks_walk *w, uint32_t unit, uint32_t head) {
    return (int8_t *)pleat__blocks_value_factors(w, unit) +
           (size_t)(head / HEADS) * (PLEAT__STREAMS * w->format->tokens / COLUMNS) * LIMB_BYTES;
}

/* ... and, behind all limbs, what they sum up to times the middle of codes: lows [HEADS] and highs [HEADS], where the
 * sum is 256 * high + low. */
#define MIDDLES (2 * HEADS)
static inline float *pleat__key_middles(const pleat__blocks_walk *w, uint32_t block, uint32_t head) {
    const size_t of_block = w->format->by_channel ? (size_t)block * w->heads : 0;
    float *all = (float *)(void *)pleat__key_limbs(w, w->format->by_channel ? PLEAT__STREAMS : 0,
                                                   w->format->by_channel ? 0 : w->heads);
    return all + (of_block + head) / HEADS * MIDDLES;
}
static inline float *pleat__value_middles(const pleat__blocks_walk *w, uint32_t unit, uint32_t part, uint32_t head) {
    float *all = (float *)(void *)pleat__value_limbs(w, unit, w->heads);
    return all + ((size_t)part * w->heads + head) / HEADS * MIDDLES;
}

INLINE __m512 sum_of_limb(const pleat__blocks_sums *sums, uint32_t limb, uint32_t h) {
    return _mm512_cvtepi32_ps(_mm512_load_si512(sums->of[limb * HEADS + h]));
}

/* Head h's sums of limbs times (code - c), in its limbs' unit. */
INLINE __m512 sum_of_head(const pleat__blocks_sums *sums, const float *middles, uint32_t h) {
    const __m512 low = _mm512_sub_ps(sum_of_limb(sums, 0, h), _mm512_set1_ps(middles[h]));
    const __m512 high = _mm512_sub_ps(sum_of_limb(sums, 1, h), _mm512_set1_ps(middles[HEADS + h]));
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256), low);
}

/* Logits of heads [head, head + HEADS) and a slice of the tokens of each block, from the blocks' sums. */
static inline void pleat__blocks_write_logits(const pleat__blocks_walk *w, uint32_t head, uint32_t slice,
                                              const pleat__blocks_sums *sums) {
    const uint32_t n_heads = pleat__min_u32(w->query->n_group - head, HEADS), n_blocks = w->n_blocks;
    const size_t row = pleat__blocks_row(w->format), tokens = w->format->tokens, heads = w->heads;
    const float *scale = w->key_scale + head, *bias = w->key_bias + head;
    float *out = w->weights + head * row + (size_t)slice * ROWS;
    for (uint32_t b = 0; b < n_blocks; b++, out += tokens, scale += heads, bias += heads) {
        const float *middles = pleat__key_middles(w, b, head);
        for (uint32_t h = 0; h < n_heads; h++) {
            const __m512 sum = sum_of_head(&sums[b], middles, h);
            _mm512_store_ps(out + h * row, _mm512_fmadd_ps(sum, _mm512_set1_ps(scale[h]), _mm512_set1_ps(bias[h])));
        }
    }
}

/* A slice of these heads' o, from the parts' sums. */
static inline void pleat__blocks_add_values(const pleat__blocks_walk *w, uint32_t head, uint32_t slice,
                                            const pleat__blocks_sums *sums) {
    const uint32_t n_heads = pleat__min_u32(w->query->n_group - head, HEADS);
    const uint32_t n_parts = pleat__div_up_u32(w->n_tokens, PART_TOKENS);
    const size_t heads = w->heads, d = w->format->head_dim, middles_step = heads / HEADS * MIDDLES;
    const uint32_t unit = pleat__blocks_unit_of(w, slice);
    const float *bias = w->value_bias + unit * heads + head, *rescale = w->rescale + head;
    const float *scales = w->value_scale + unit * PLEAT__STREAMS * heads + head;
    const float *middles = pleat__value_middles(w, unit, 0, head);
    float *o = w->acc->o + head * d + (size_t)slice * ROWS;
    for (uint32_t h = 0; h < n_heads; h++, o += d) {
        __m512 sum = _mm512_set1_ps(bias[h]);
        for (uint32_t p = 0; p < n_parts; p++) {
            const __m512 scale = _mm512_set1_ps(scales[p * heads + h]);
            sum = _mm512_fmadd_ps(sum_of_head(&sums[p], middles + p * middles_step, h), scale, sum);
        }
        const __m512 old = _mm512_mul_ps(_mm512_load_ps(o), _mm512_set1_ps(rescale[h]));
        _mm512_store_ps(o, _mm512_add_ps(old, sum));
    }
}

/* The VNNI variant's steps; the AMX variant has them too, for few heads. */
extern const pleat__blocks_steps pleat__blocks_steps_vnni;

/* The variants' steps, by their dot products:
 * sums = codes of n_columns columns times limbs, of n_heads heads or HEADS if there are more. */
typedef void (*pleat__blocks_dots_fn)(const uint8_t *codes, uint32_t n_columns, const int8_t *limbs, uint32_t n_heads,
                                      pleat__blocks_sums *sums);

INLINE void keys_by(pleat__blocks_dots_fn dots, pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t d = w->format->head_dim, n_group = w->query->n_group;
    pleat__blocks_sums sums[PLEAT__STREAMS];
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        for (uint32_t b = 0; b < w->n_blocks; b++)
            dots(w->codes + (size_t)b * d * ROWS, d, pleat__key_limbs(w, b, head), n_group - head, &sums[b]);
        pleat__blocks_write_logits(w, head, slice, sums);
    }
}

INLINE void values_by(pleat__blocks_dots_fn dots, pleat__blocks_walk *w, uint32_t slice) {
    const uint32_t n_group = w->query->n_group;
    pleat__blocks_sums sums[MAX_PARTS];
    for (uint32_t head = 0; head < n_group; head += HEADS) {
        const int8_t *limbs = pleat__value_limbs(w, pleat__blocks_unit_of(w, slice), head);
        for (uint32_t from = 0, p = 0; from < w->n_tokens; from += PART_TOKENS, p++)
            dots(w->codes + (size_t)from * ROWS, pleat__min_u32(w->n_tokens - from, PART_TOKENS),
                 limbs + p * PART_LIMB_BYTES, n_group - head, &sums[p]);
        pleat__blocks_add_values(w, head, slice, sums);
    }
}

/* All steps of a variant: the four that it has of its own, and those that they share. */
#define BLOCKS_STEPS(begin_, keys_, values_, end_, takes_planes_)                              \
    {                                                                                          \
        .begin = (begin_), .keys_begin = pleat__blocks_keys_begin_avx512, .keys = (keys_),     \
        .cap = pleat__attn_cap_avx512, .softmax = pleat__blocks_softmax_avx512,                \
        .values_begin = pleat__blocks_values_begin_avx512, .values = (values_), .end = (end_), \
        .takes_planes = (takes_planes_), .mean = pleat__blocks_mean_avx512                     \
    }

#endif
