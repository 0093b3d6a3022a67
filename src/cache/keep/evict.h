/* SPDX-License-Identifier: MIT
 *
 * evict.h: what a policy with a budget drops at the end of a step (policy/evict.h decides), and what becomes of the
 * slots that are left (reclaim/reclaim.h plans).
 */
#ifndef PLEAT_CACHE_KEEP_EVICT_H
#define PLEAT_CACHE_KEEP_EVICT_H

#include "cache/keep/keep.h"

/* Does a lane of n_live tokens lose one in generation? */
static inline bool pleat__drop_is_due(uint32_t n_live, uint32_t budget) { return n_live > budget; }

/* Drop what the policy drops of one layer at the end of a prompt, or of one lane when one token has left the window. */
void pleat__drop_layer(const pleat_cache *cache, const pleat__step_item *item, uint32_t layer,
                       pleat__drop_scratch *scratch);
void pleat__drop_one(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                     pleat__drop_scratch *scratch);

#endif
