/* SPDX-License-Identifier: MIT
 *
 * kvcrush.h: a share of the budget for representatives of the tokens that a policy would drop.  KVCrush, section 3,
 * corrected where its formulas do not say what its text does.
 *
 * Fingerprint of a token in a layer: bit h, over all query heads, is set if the attention that it received in head h is
 * among the highest of that head's candidates.  That is score >= theta_h, the score of rank `middle` (of rank 1 if that
 * is 0, of the last if they are fewer).  (The paper averages a row of the softmax, which is the constant 1/S; meant is
 * the column.)
 *
 *     n_rep            floor(share * (middle + before)) - before, not below 0.  middle is the layer's mean where lanes
 *                      have budgets of their own; before: representatives that stand already (verdict STAND), which
 *                      are protected, so that middle is without them; the most that a lane has
 *     important        of each lane, the (middle - n_rep) candidates of the highest rank
 *     the rest         tokens that are candidates in every lane of the layer and important in none
 *     distance         of each of the rest to the anchor, by popcount
 *     buckets          the rest in the order of (distance, fingerprint as a number, position), cut into n_rep buckets:
 *                      bucket i from i*n/n_rep on, so that counts differ by one at most.  Distances take H + 1 values
 *                      at most: one bucket a distance, as the paper has it, could not give n_rep of them
 *     representatives  of each bucket the token nearest its centroid (majority bits, ties to 1), the older among equals
 *
 * All lanes of a layer keep the same representatives.  But a lane whose middle is below n_rep keeps that many of them
 * only: of the r that there are, in the buckets' order, number i if floor((i+1)*middle/r) > floor(i*middle/r).  What is
 * then left of a lane's middle (the rest may be fewer than n_rep) goes to its next important tokens: every lane keeps
 * just min(middle, its candidates) of them.  Where no lane has more candidates than its middle nothing is dropped, and
 * there are no representatives.
 *
 *     anchor   mean       majority bit over the rest, ties to 1
 *              alternate  0101...: bit h is h & 1
 *              random     a fixed random word for each layer
 *              kmeans     no anchor: n_rep clusters of the fingerprints by Lloyd's algorithm (kmeans.h), the expensive
 *                         comparison
 *     unit     token, or page: positions [p*T, (p+1)*T), T = page_tokens.  Of a page a lane keeps all candidates or
 *              none; at the border of sinks and window it has fewer than T.  Its rank is the sum of theirs; its
 *              fingerprint theirs side by side, bits of tokens that are no candidates being 0.
 *              All of the above then goes by pages: floor(n_rep/T) of them are representatives, for which a lane sets
 *              aside T tokens each, floor(middle/T) pages at most; the rest are pages with candidates in every lane
 *              and important in none.  Important pages, and later those that take what is left, are gone through by
 *              rank, ties to the older, and each that fits is taken: so a lane leaves room only that none of its
 *              dropped pages fits in.  Without a share that is the paper's paged H2O
 *
 * Cost O(S*H) with small constants a layer beside the ranks: thresholds by 31 counts over the scores of a head, a sort
 * by bytes of the fingerprints.  Pure functions; bits are counted by variants for CPUs with equal results
 * (fingerprint.h).
 */
#ifndef PLEAT_POLICY_KVCRUSH_H
#define PLEAT_POLICY_KVCRUSH_H

#include "policy/evict.h"

/* The stage's part of a layer's decision.  On entry verdicts are KEEP or STAND for protected tokens and DROP for all
 * others, ranks[lane][slot] is >= 0 for candidates and negative for all others, and middle is each lane's.  Sets KEEP
 * for important tokens and STAND for representatives.  The lanes' pages have n_group scores a slot.  by_position and
 * floats of the scratch are written. */
void pleat__crush_layer(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch, const uint32_t *middle,
                        uint8_t *const *verdicts);

/* Take the stage's scratch for a layer: the arena counts if it has no base.  Pages have at least PLEAT__TILE tokens. */
void *pleat__crush_carve(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_group, uint32_t slots_cap,
                         uint32_t max_tokens, pleat__arena *arena);

#endif
