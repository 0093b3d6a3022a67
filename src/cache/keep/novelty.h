/* SPDX-License-Identifier: MIT
 *
 * novelty.h: scoring the tokens of novel's and leverage's lanes by their keys (policy/novelty.h, leverage.h): the part of
 * budget.c that reads pages.
 *
 *     of the cache      how RoPE turned each layer's keys: tables, one for all layers with the same pleat_rope
 *     of a sequence     a lane's sum of unturned unit keys, over all tokens that an end of a step has seen (mean=prompt)
 *     of the model      a lane's mean key, from its statistics, in place of that sum (mean=model)
 *
 * Keys are taken as pages hold them, when a step ends.  So what a token adds depends on its own bytes and position
 * alone, a cancelled step has changed nothing, and a fork or an image need a copy of the sums beside the pages.
 * seq->n_classed tells which tokens have been seen: none if it is 0, else n_classed + window of them.
 *
 * With the model's mean a score is the token's own, whatever came before it and comes after: it is taken once.  With
 * near=n it is whole when n more have come, and nothing that comes later changes it.  The window is 2n tokens at least,
 * so what the scores that are not whole need is still there.  Behind another policy
 * scores are taken whenever a prompt ends, as they mark what was chosen (policy/evict.h).
 */
#ifndef PLEAT_CACHE_KEEP_NOVELTY_H
#define PLEAT_CACHE_KEEP_NOVELTY_H

#include "cache/keep/keep.h"

/* Whether the spec scores keys.  Without it the functions below do nothing. */
static inline bool pleat__scores_keys(const pleat_cache *c) { return pleat__scores_novelty(&c->opt.spec); }

/* Likewise, for leverage. */
static inline bool pleat__scores_leverage(const pleat_cache *c) {
    return pleat__scoring_of(&c->opt.spec) == PLEAT__SCORING_LEVERAGE;
}

/* Do the options have what novel, leverage and expected need of them? */
pleat_status pleat__novelty_check(const pleat_cache *c, const pleat_cache_options *opt, pleat_error *err);

/* Of keep.h's row.  The tables are expected's, too. */
void pleat__novelty_carve(pleat_cache *c, pleat__arena *arena);
void pleat__novelty_init(pleat_cache *c, const pleat_cache_options *opt);
void pleat__novelty_carve_seq(const pleat_cache *c, uint32_t max_tokens, pleat__sequence *seq, pleat__arena *arena);
void pleat__novelty_fork(const pleat_cache *c, const pleat__sequence *from, pleat__sequence *to);
const char *pleat__novelty_image_key(const pleat_cache *c);
uint64_t pleat__novelty_image_bytes(const pleat_cache *c, uint32_t n_classed);
void pleat__novelty_write_image(const pleat_cache *c, const pleat__sequence *seq, uint8_t *out);
bool pleat__novelty_read_image(const pleat_cache *c, const uint8_t *in, const pleat__image_counts *counts,
                               pleat__sequence *seq);

/* Memory of a unit. */
void pleat__novelty_carve_unit(const pleat_cache *c, pleat__novelty_scratch *scratch, pleat__arena *arena);

/* At the end of a prompt: what has not been seen joins the lane's sum, and all of its tokens are scored; of novel against
 * the model's mean those that have not been. */
void pleat__novelty_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                              pleat__novelty_scratch *scratch);

/* At the end of a prompt: all of the lane's tokens are scored by their leverage (policy/leverage.h). */
void pleat__leverage_of_prompt(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                               pleat__novelty_scratch *scratch);

/* In generation: what has not been seen joins the sum, and is scored. */
void pleat__novelty_of_step(const pleat_cache *c, const pleat__step_item *item, uint32_t lane,
                            pleat__novelty_scratch *scratch);

#endif
