/* SPDX-License-Identifier: MIT
 *
 * novelty.h: how unlike a token's key is to the others of its lane, before RoPE turned it.  What novel ranks tokens by:
 * KeyDiff (Park et al. 2025, arXiv 2504.15364, section 3) on keys whose turn is undone.
 *
 *     k0 = R(-t) k             the key of position t as it was before RoPE; dimensions that do not turn stay
 *     u  = k0 / |k0|           0 for a key of zeros
 *     sum                      of u over the lane's tokens so far, dropped ones too
 *     own   = 1 - u.sum/|sum|  0..2; 1 where the sum is zeros
 *     score(i) = (own(i-n) + .. + own(i+n)) / (2n+1)     n = near.  What is asked for is a span of tokens, of which some
 *                              are like all others
 *
 * Where a token of the span has been dropped the mean is over the others; positions before the first and behind the
 * newest count as 0, which touches sinks and the window alone.
 *
 * The paper has keys as they are cached, after RoPE, where two equal keys far apart look unlike.
 *
 * The turn of a position is made of two, so that a table of all positions need not be kept: t = 256 f + n, and
 * angle(t) = angle(256 f) + angle(n).  Cos and sin of both parts stand in tables; one complex product gives theirs.
 *
 * Everything goes by tiles of 16 tokens, [head_dim][16] as pages are dequantised.  What a token gives does not depend on
 * its place in the tile or on the others there.  Pure functions of what they are handed; scalar code, which compilers
 * vectorise across tokens.
 */
#ifndef PLEAT_POLICY_NOVELTY_H
#define PLEAT_POLICY_NOVELTY_H

#include "core/memory.h"
#include "pleat/cache.h"

#define PLEAT__NEAR_TURNS 256u

/* Positions to come that are looked at together (expected.h). */
#define PLEAT__TURNS_AHEAD 512u

/* How far positions up to a number of them turn keys back.  Rows of [2][n_pairs]: cosines, then sines. */
typedef struct pleat__turns {
    uint32_t n_pairs;      /* 0: keys are not turned */
    uint32_t first, other; /* the pairs are (first*i, first*i + other) */
    float unscale;         /* 1 / pleat_rope.magnitude */
    float *near;           /* [PLEAT__NEAR_TURNS] rows, of positions 0, 1, 2, ...; with unscale */
    float *far;            /* [ceil(max_tokens / PLEAT__NEAR_TURNS)] rows, of positions 0, 256, 512, ... */
    float *ahead;          /* a row: the mean of positions 1 to PLEAT__TURNS_AHEAD, without unscale */
} pleat__turns;

/* Is it a layer's rope, of heads of head_dim?  PLEAT_E_ARG, and err says why not.  NULL: keys are not turned. */
pleat_status pleat__turns_check(const pleat_rope *rope, uint32_t head_dim, uint32_t layer, pleat_error *err);

/* The tables for positions below max_tokens; NULL: keys are not turned. */
void pleat__turns_carve(const pleat_rope *rope, uint32_t max_tokens, pleat__turns *turns, pleat__arena *arena);
void pleat__turns_init(const pleat_rope *rope, uint32_t max_tokens, pleat__turns *turns);

/* A tile of keys. */
typedef struct pleat__key_tile {
    float *k;    /* [head_dim][PLEAT__TILE] finite */
    float *turn; /* [2][n_pairs][PLEAT__TILE] scratch */
    uint32_t head_dim;
    const int32_t *positions;  /* [PLEAT__TILE] those below 0 are no tokens */
    float scales[PLEAT__TILE]; /* out of unturn: 1/|k0|, or 0 for keys of zeros and what is no token */
} pleat__key_tile;

/* k becomes k0, and scales are filled. */
void pleat__key_tile_unturn(const pleat__turns *turns, pleat__key_tile *tile);

/* Add the u of tokens at positions >= from to sum [head_dim], in the order of slots. */
void pleat__key_tile_add(const pleat__key_tile *tile, int32_t from, float *sum);

/* mean [head_dim] = sum / |sum|, or zeros. */
void pleat__key_mean(const float *sum, uint32_t head_dim, float *mean);

/* own of the tile's tokens, scores[PLEAT__TILE]: never below the smallest normal float, so that none ranks as unscored. */
void pleat__key_tile_score(const pleat__key_tile *tile, const float *mean, float *scores);

/* ---- neighbours, of novel and of leverage (leverage.h) */

/* In place of own where a token has been dropped. */
#define PLEAT__GONE (-1.0f)

/* What of own goes into a score, n_gone of whose span have been dropped. */
static inline float pleat__near_part(uint32_t near, uint32_t n_gone) { return 1 / (float)(2 * near + 1 - n_gone); }

/* The score of a token that is there; own: [n_tokens] by position, of which the span is looked at. */
float pleat__near_score(const float *own, uint32_t n_tokens, uint32_t position, uint32_t near);

#endif
