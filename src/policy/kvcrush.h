/* SPDX-License-Identifier: MIT
 *
 * kvcrush.h: a share of the budget for representatives of the tokens that a policy would drop.  KVCrush, section 3,
 * corrected where its formulas do not say what its text does.
 *
 * Fingerprint of a token in a layer: bit h, over all query heads, is set if the attention that it received in head h is
 * among the highest of that head's candidates: score >= theta_h, the score of rank `middle`.  (The paper averages a row
 * of the softmax, which is the constant 1/S; meant is the column.)
 *
 *     important        of each lane, the (middle - n_rep) candidates of the highest rank     n_rep = floor(share * middle)
 *     the rest         tokens that stand in every lane of the layer and are important in none
 *     distance         of each of the rest to the anchor, by popcount
 *     buckets          the rest in the order of (distance, fingerprint, position), cut into n_rep buckets of equal count (they
 *                      differ by one at most): distances take H + 1 values at most, so one bucket a distance, as the
 *                      paper has it, could not give n_rep of them
 *     representatives  of each bucket the token nearest its centroid (majority bits, ties to 1), the older among equals
 *
 * All lanes of a layer keep the same representatives.  If the rest is fewer than n_rep, each lane's next important
 * tokens take the places that are left.  middle is the layer's mean where lanes have budgets of their own, and no lane
 * gets more representatives than its middle.
 *
 *     anchor   mean       majority bit over the rest, ties to 1
 *              alternate  0101...: bit h is h & 1
 *              random     a fixed random word for each layer
 *              kmeans     no anchor: n_rep clusters of the fingerprints by Lloyd's algorithm, the expensive comparison
 *     unit     token, or page: positions [p*T, (p+1)*T), T = page_tokens.  A page's rank is the sum of its candidates'; its
 *              fingerprint theirs side by side, bits of tokens that are no candidates being 0.  Pages are taken whole
 *              while they fit in what is left of the budget, then the next ones that do
 *
 * Cost O(S * H / 64) a layer beside the ranks.  Pure functions; bits are counted by variants for CPUs with equal results.
 */
#ifndef PLEAT_POLICY_KVCRUSH_H
#define PLEAT_POLICY_KVCRUSH_H

#include "policy/evict.h"

/* The stage's part of a layer's decision.  On entry verdicts are KEEP or STAND for protected tokens and DROP for all
 * others, ranks[lane][slot] is >= 0 for candidates and negative for all others, and middle is each lane's.  Sets KEEP for
 * important tokens and STAND for representatives.  Representatives of before (verdict STAND) count against n_rep. */
void pleat__crush_layer(const pleat__evict_layer *layer, const pleat__evict_scratch *scratch, const uint32_t *middle,
                        uint8_t *const *verdicts);

/* Take the stage's scratch for a layer: the arena counts if it has no base. */
void *pleat__crush_carve(const pleat_spec *spec, uint32_t n_lanes, uint32_t n_group, uint32_t slots_cap,
                         uint32_t max_tokens, pleat__arena *arena);

#endif
