/* SPDX-License-Identifier: MIT
 *
 * leverage.h: how far a token's key stands out among those of its lane, before RoPE turned it: its leverage, the score of
 * Compactor (Chari et al. 2025, arXiv 2507.08143) without its sketch and its attention.
 *
 *     k0 = R(-t) k                       as in novelty.h
 *     m, C                               mean and covariance of k0 over the lane's tokens behind the sinks
 *     own   = x^T (C + r I)^-1 x         x = k0 - m; r = 0.1 of C's mean diagonal; 0 for a sink
 *     score = the mean of own over near neighbours on each side, as in novelty.h
 *
 * Novelty asks how far a key turns away from the mean; this asks in which direction, too, and counts it in the deviations
 * that are usual there.  So a direction in which few keys differ is not drowned by those in which all do.
 *
 * Everything goes by novelty.h's tiles, whose keys are unturned.  Pure functions of what they are handed.
 */
#ifndef PLEAT_POLICY_LEVERAGE_H
#define PLEAT_POLICY_LEVERAGE_H

#include "policy/novelty.h"

/* What a lane's keys are measured by. */
typedef struct pleat__key_spread {
    uint32_t head_dim;
    float n;     /* tokens that were added */
    float *mean; /* [head_dim] their sum, and from pleat__spread_centre() on their mean */
    /* [head_dim][head_dim] sums of products, and from pleat__spread_close() on the factor L of C + r I = L L^T; what
     * stands above the diagonal is not used. */
    float *lower;
    float *row; /* [head_dim] scratch */
} pleat__key_spread;

void pleat__spread_carve(uint32_t head_dim, pleat__key_spread *spread, pleat__arena *arena);

/* open ── add_mean of all tiles ── centre ── add_products of all tiles ── close ── score of any tile.  Both adds take the
 * tokens at positions >= from.  add_products and score leave a tile's keys without the mean, or used up. */
void pleat__spread_open(pleat__key_spread *spread);
void pleat__spread_add_mean(const pleat__key_tile *tile, int32_t from, pleat__key_spread *spread);
void pleat__spread_centre(pleat__key_spread *spread);
void pleat__spread_add_products(pleat__key_tile *tile, int32_t from, pleat__key_spread *spread);
void pleat__spread_close(pleat__key_spread *spread);

/* own of the tile's tokens, scores[PLEAT__TILE], never below the smallest normal float. */
void pleat__spread_score(const pleat__key_spread *spread, pleat__key_tile *tile, float *scores);

#endif
