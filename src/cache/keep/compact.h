/* SPDX-License-Identifier: MIT
 *
 * compact.h: what a policy with levels decides about one lane at the end of a step, done to its tokens and cells.
 */
#ifndef PLEAT_CACHE_KEEP_COMPACT_H
#define PLEAT_CACHE_KEEP_COMPACT_H

#include "cache/keep/keep.h"
#include "policy/policy.h"

/* One token left the window of every lane: what the policy does to this one.  Looks at the lane and asks for the bytes
 * that doing it will touch, so that those of several lanes arrive together. */
pleat__policy_step pleat__compact_decide(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane);

/* Do it. */
void pleat__compact_step(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                         const pleat__policy_step *step, const pleat__compact_scratch *scratch);

/* Decide and do it at the end of a counted step, where not every step is (spec->every > 1). */
void pleat__compact_counted(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                            const pleat__compact_scratch *scratch);

/* Do what the policy says at the end of a prompt to one lane, whose slots count the step's tokens already.  Moves no
 * page to or from the pool: pages that no slot needs any more are left to pleat__table_trim(). */
void pleat__compact_prompt(const pleat_cache *cache, const pleat__step_item *item, uint32_t lane,
                           const pleat__compact_scratch *scratch);

/* Class the lane's open tokens again by seq->spec, low ones too.  There are two low pages to spare in its row. */
void pleat__compact_again(const pleat_cache *cache, pleat__sequence *seq, uint32_t lane,
                          const pleat__compact_scratch *scratch);

#endif
