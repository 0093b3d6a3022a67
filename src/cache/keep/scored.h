/* SPDX-License-Identifier: MIT
 *
 * scored.h: what lanes share whose slots hold positions and the attention that their tokens have received: levels.c and
 * budget.c.
 *
 * Such a page is written by every step until it is sealed.  Sealed pages are full, hold tokens whose level is final, and
 * instead of sums of attention received hold its mean: neither depends on how long the sequence has become since.
 */
#ifndef PLEAT_CACHE_KEEP_SCORED_H
#define PLEAT_CACHE_KEEP_SCORED_H

#include "cache/keep/keep.h"

/* Set cache->counting to what the spec's policy counts. */
void pleat__scored_derive(pleat_cache *cache);

/* Plan the end of a step but for budgets.  False: no lane changes. */
bool pleat__scored_end(const pleat__item_counts *n, const pleat_spec *spec, pleat__item_end *end);

uint32_t pleat__scored_first_written(const pleat_cache *cache, const pleat__table *table, uint32_t lane,
                                     pleat__side side);
void pleat__scored_seal(const pleat_cache *cache, pleat__sequence *seq, uint32_t n_final);

/* Open the lane's sealed pages again, back to the last shared one: scores are sums again. */
void pleat__scored_unseal(const pleat_cache *cache, pleat__sequence *seq, uint32_t lane);
void pleat__scored_cancel(const pleat_cache *cache, const pleat__step_item *item);
bool pleat__scored_lane_is_sound(const pleat_cache *cache, uint32_t lane_idx, const pleat__lane *lane,
                                 const pleat__image_counts *counts);
pleat__token_at pleat__scored_find(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane,
                                   uint32_t position);
void pleat__scored_list(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint32_t first,
                        uint32_t n_tokens, pleat_cache_token *out);
bool pleat__scored_is_valid(const pleat_cache *cache, const pleat__sequence *seq, uint32_t lane, uint8_t *scratch);

#endif
