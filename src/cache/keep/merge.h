/* SPDX-License-Identifier: MIT
 *
 * merge.h: tokens that are dropped go into tokens that stay: what +merge adds to evict.c.
 *
 * N tokens so far.  s of a token is the mean attention that it has received: its score over the queries that it was
 * counted from, which are the N - 1 - position later ones, or of these those in the window (policy/evict.h).  It is
 * rounded to 8 bits, since the last bits of a sum depend on how a prompt was cut, and is MERGE_LEAST at least.
 *
 *     takers     tokens that stay, but for sinks and the newest 8, whose s is made of too few queries
 *     c of j     for a dropped token j: of the takers within 256 positions, and the 64 of the largest s, the one whose
 *                key has the largest cosine with j's, the older among equals; none below a cosine of 0.4
 *
 * and then, for each c that some j go into:
 *
 *     s_all = s_c + sum of s_j
 *     v_c <- (s_c v_c + sum of s_j v_j) / s_all          the key stays as it is
 *     mass_c <- mass_c * s_all / s_c, at most 512        attn/mass.h
 *     s_c <- s_all                                       in its score, so that what goes later goes by all of it
 *
 * So a query that attends to both keys alike gives c the weight, and gets from it the value, that it would have had of
 * them all.  Sums run from the oldest j to the newest: in which slots tokens stand changes nothing.
 *
 * After MergingPress and D2O, which average values; the mass by attention, in place of a count, is ours.  docs/ACCURACY.md
 * has figures and what did not work.
 */
#ifndef PLEAT_CACHE_KEEP_MERGE_H
#define PLEAT_CACHE_KEEP_MERGE_H

#include "cache/keep/keep.h"

/* A lane whose tokens are about to go. */
typedef struct pleat__merge_lane {
    const pleat_cache *cache;
    const pleat__kv_run *run; /* its slots that are not sealed */
    uint32_t n_tokens;        /* N */
} pleat__merge_lane;

/* Memory of a unit; nothing unless the spec merges. */
void pleat__merge_carve_unit(const pleat_cache *cache, pleat__merge_scratch *scratch, pleat__arena *arena);

/* Merge what the verdicts drop, [slot] (policy/evict.h), positions still being there. */
void pleat__merge_dropped(const pleat__merge_lane *lane, const uint8_t *verdicts, pleat__merge_scratch *scratch);

/* Merge the token of one slot. */
void pleat__merge_one(const pleat__merge_lane *lane, uint32_t slot, pleat__merge_scratch *scratch);

/* Are a page's masses, of all its slots, ones that could have come about? */
bool pleat__merge_masses_are_sound(const pleat__page_layout *layout, uint8_t *page);

#endif
