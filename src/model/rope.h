/* SPDX-License-Identifier: MIT
 *
 * rope.h: by how much a position turns the pairs of a head.
 *
 *     frequency of pair i:  base^(-2i/n_dims) / divisor of i,  then one of
 *         linear   / factor
 *         yarn     a mean of itself and itself / factor, by how often the pair turns in n_ctx_orig tokens (Peng et al.,
 *                  "YaRN", 3.2): the often turning ones stay, the rare ones are stretched
 *     angle:   position * frequency;  cos and sin are multiplied by `magnitude` (YaRN 3.4, longrope)
 *
 * Angles are computed in f64, so that a late position has no f32 rounding.
 */
#ifndef PLEAT_MODEL_ROPE_H
#define PLEAT_MODEL_ROPE_H

#include "core/types.h"

typedef struct pleat__rope {
    uint32_t n_dims; /* dimensions of a head that turn: the first ones; even */
    bool is_halves;  /* pairs are (i, i + n_dims/2); false: (2i, 2i+1) */
    bool is_yarn;
    bool is_smooth; /* yarn: the pairs at which beta_fast and beta_slow stand are fractions, not rounded outward */
    float base;
    float factor;              /* linear, yarn: the context is stretched by so much; 1: not */
    float beta_fast;           /* yarn: pairs that turn so often or more in n_ctx_orig tokens stay as they are */
    float beta_slow;           /* yarn: those that turn so often or less are stretched by all of factor */
    float magnitude;           /* 1 without scaling */
    uint32_t n_ctx_orig;       /* yarn, long_factors: the context before it was stretched */
    const float *factors;      /* [n_dims/2] divisors, or NULL */
    const float *long_factors; /* [n_dims/2] those for sequences that may pass n_ctx_orig tokens, or NULL: the same */
} pleat__rope;

/* frequencies [n_dims/2] for sequences of at most max_tokens tokens. */
void pleat__rope_frequencies(const pleat__rope *rope, uint32_t max_tokens, double *frequencies);

/* turn [2*n_dims], what ops.h's rope functions take: for element j of pair i cos_i, and at n_dims + j the factor on the
 * pair's other element, -sin_i for the first and sin_i for the second. */
void pleat__rope_turn(const pleat__rope *rope, uint32_t position, const double *frequencies, float *turn);

#endif
